// Drives tests/support/server/fallback/example_server.py with the TypeScript SDK 1.x, whose user has no tasks and uses none. It holds all
// structured content against the schemas that it was shown. See steps.mjs.

import assert from "node:assert/strict";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";

import { kind, open, pause, refusal, step } from "./steps.mjs";

const FIVE = ["task_wait", "task_status", "task_result", "task_cancel", "task_answer"];
const REPORT = { year: 2026, first: { title: "one", pages: [{ title: "two", pages: [] }] } };
// How long the server lets a call wait. A busy machine needs most of it to answer "at once".
const WAIT = 4_000;
const waits = (count) => (count * WAIT) / 1_000;
// By which this client gives up: what it calls has to be answered in good time.
const TIMEOUT = 8 * WAIT;

function plainClient(capabilities, troubles) {
  const client = new Client({ name: "drive", version: "1" }, { capabilities });
  client.onerror = (error) => troubles.push(String(error));
  return client;
}

const troubles = [];
const client = plainClient({}, troubles);

function call(name, parameters = {}, options = {}, by = client) {
  return by.callTool({ name, arguments: parameters }, undefined, { timeout: TIMEOUT, ...options });
}

// Make the next call as it is spelled out, in the text as in the structured content.
function goOn(answer, filled = {}, by = client) {
  const { tool, arguments: spelled } = answer.structuredContent.next;
  assert.ok(answer.content[0].text.includes(`${tool} with ${pythonJson(spelled)}`), answer.content[0].text);
  const parameters = "answer" in spelled ? { ...spelled, answer: { ...spelled.answer, ...filled } } : spelled;
  return call(tool, parameters, {}, by);
}

// As Python writes it: with a space behind commas and colons.
function pythonJson(value) {
  if (typeof value !== "object") return JSON.stringify(value);
  return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${pythonJson(one)}`).join(", ")}}`;
}

async function listed() {
  const { tools } = await client.listTools();
  assert.deepEqual(tools.map((tool) => tool.name).slice(-FIVE.length), FIVE);
  assert.ok(tools.every((tool) => tool.description.length < 200));
  return tools.length;
}

async function atOnce() {
  const { structuredContent, content } = await call("build_report", { year: 2026, seconds: 0 });
  assert.deepEqual(structuredContent, REPORT);
  assert.deepEqual(JSON.parse(content[0].text), REPORT);
}

async function inTheEnd() {
  let answer = await call("build_report", { year: 2026, seconds: waits(2.5) });
  const texts = [answer.content[0].text];
  while (answer.structuredContent.next !== undefined) {
    answer = await goOn(answer);
    texts.push(answer.content[0].text);
  }
  assert.deepEqual(answer.structuredContent, REPORT);
  assert.ok(texts.length > 2, "it was told of at once");
  return texts;
}

async function picture() {
  let answer = await call("draw", { seconds: waits(1.6) });
  assert.equal(answer.structuredContent.status, "working");
  while (answer.structuredContent !== undefined) answer = await goOn(answer);
  assert.equal(answer.content[0].type, "image");
}

async function toolError() {
  let answer = await call("refuse", { seconds: waits(1.6) });
  while (!answer.isError) answer = await goOn(answer);
  assert.equal(answer.content[0].text, "no paper left");
}

async function protocolError() {
  let answer = await call("break_down", { seconds: waits(1.6) });
  while (!answer.isError) answer = await goOn(answer);
  assert.equal(answer.content[0].text, "break_down failed: go there first");
  const { code } = await refusal(call("break_down", { seconds: 0 }));
  assert.equal(code, -32042);
}

async function inWords() {
  const asked = await call("publish");
  assert.equal(asked.structuredContent.status, "input_required");
  const wrong = await goOn(asked, { sure: "certainly" });
  assert.ok(wrong.isError);
  const { content } = await goOn(asked, { sure: true });
  assert.equal(content[0].text, "published");
  return asked.content[0].text;
}

async function throughTheHost() {
  const [asked, wrong] = [[], []];
  const other = plainClient({ elicitation: {} }, wrong);
  const thinking = Promise.withResolvers();
  other.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
    asked.push(params.message);
    await thinking.promise;
    return { action: "accept", content: { sure: true } };
  });
  await other.connect(open(StreamableHTTPClientTransport, StdioClientTransport));
  try {
    await other.listTools();
    let answer = await call("publish", {}, {}, other);
    assert.ok(answer.content[0].text.includes("The user has been asked"), answer.content[0].text);
    // It thinks for longer than two calls wait.
    answer = await goOn(answer, {}, other);
    assert.ok(answer.content[0].text.includes("The user has been asked"), answer.content[0].text);
    const last = goOn(answer, {}, other);
    thinking.resolve();
    assert.equal((await last).content[0].text, "published");
    assert.deepEqual(asked, ["Publish it?"]);
    assert.deepEqual(wrong, []);
  } finally {
    await other.close();
  }
}

async function progress() {
  const seen = [];
  const options = { onprogress: ({ progress }) => seen.push(progress) };
  let answer = await call("build_report", { year: 2026, seconds: waits(2.4) }, options);
  const during = seen.length;
  await pause(100);
  assert.equal(seen.length, during, "progress after the answer");
  while (answer.structuredContent.next !== undefined) answer = await goOn(answer);
  assert.deepEqual(seen, seen.toSorted((one, other) => one - other));
  return seen;
}

async function lost() {
  if (kind === "http") {
    assert.ok((await call("task_status")).isError, "strangers are told nothing");
    return;
  }
  const handle = await call("draw", { seconds: 60 });
  const { structuredContent } = await call("task_status", { tool: "draw" });
  assert.equal(structuredContent.tasks[0].task_id, handle.structuredContent.task_id);
  const { structuredContent: stopped } = await call("task_cancel", { task_id: handle.structuredContent.task_id });
  assert.equal(stopped.status, "cancelled");
}

async function unknown() {
  const answers = await Promise.all(FIVE.map((name) => call(name, { task_id: "nobody's" })));
  assert.ok(answers.every((answer) => answer.isError));
  assert.equal(new Set(answers.map((answer) => answer.content[0].text)).size, 1);
}

async function understood() {
  assert.deepEqual(troubles, []);
}

await client.connect(open(StreamableHTTPClientTransport, StdioClientTransport));
try {
  await step("listed", listed);
  await Promise.all([
    step("at once", atOnce),
    step("in the end", inTheEnd),
    step("picture", picture),
    step("tool error", toolError),
    step("protocol error", protocolError),
    step("in words", inWords),
    step("through the host", throughTheHost),
    step("progress", progress),
    step("unknown", unknown),
  ]);
  await step("lost", lost);
  await step("understood", understood);
} finally {
  await client.close();
}
