// Drives examples/conformance.py in 2025-11-25 with the tasks of the TypeScript SDK 1.x. See steps.mjs.

import assert from "node:assert/strict";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
  CallToolResultSchema,
  ElicitRequestSchema,
  TaskStatusNotificationSchema,
} from "@modelcontextprotocol/sdk/types.js";

import { RELATED, assertListed, assertTask, changes, kind, open, pause, refusal, step, until } from "./steps.mjs";

const MANY = 105;
const SUPPORT = {
  greet: undefined,
  slow_compute: "optional",
  failing_job: "required",
  protocol_error_job: "optional",
  confirm_delete: "optional",
  multi_input: "optional",
  summarize: "optional",
  count_up: "optional",
  test_tool_with_task: "required",
};

const client = new Client(
  { name: "drive", version: "1" },
  { capabilities: { elicitation: {} }, enforceStrictCapabilities: true },
);
const tasks = client.experimental.tasks;

const troubles = [];
client.onerror = (error) => troubles.push(String(error));

const pushed = [];
client.setNotificationHandler(TaskStatusNotificationSchema, ({ params }) => {
  pushed.push(params);
});

// What the steps answer when they are asked.
const asked = [];
let answer;
client.setRequestHandler(ElicitRequestSchema, async ({ params }, extra) => {
  asked.push({ message: params.message, task: params._meta?.[RELATED]?.taskId });
  return answer(params, extra);
});

const transport = open(StreamableHTTPClientTransport, StdioClientTransport);
let version;
const keepVersion = transport.setProtocolVersion?.bind(transport);
transport.setProtocolVersion = (negotiated) => {
  version = negotiated;
  keepVersion?.(negotiated);
};

// Call a tool as a task, to its end.
async function follow(name, parameters, { onCreated, ...options } = {}) {
  const messages = [];
  for await (const message of tasks.callToolStream({ name, arguments: parameters }, CallToolResultSchema, options)) {
    messages.push(message);
    if (message.type === "taskCreated") await onCreated?.(message.task);
  }
  const [first] = messages;
  assert.equal(first.type, "taskCreated", JSON.stringify(messages));
  assertTask(first.task, "working");
  const views = messages.filter((message) => message.type === "taskStatus").map((message) => message.task);
  const states = changes([first.task, ...views].map((task) => task.status));
  return { id: first.task.taskId, task: first.task, states, view: views.at(-1), last: messages.at(-1) };
}

function result(id) {
  return tasks.getTaskResult(id, CallToolResultSchema);
}

async function handshake() {
  assert.equal(version, "2025-11-25");
  const { tasks: declared, extensions } = client.getServerCapabilities();
  const list = kind === "stdio" ? { list: {} } : {};
  assert.deepEqual(declared, { ...list, cancel: {}, requests: { tools: { call: {} } } });
  assert.equal(extensions, undefined);
  return declared;
}

async function support() {
  const { tools } = await client.listTools();
  const found = Object.fromEntries(tools.map((tool) => [tool.name, tool.execution?.taskSupport]));
  assert.deepEqual({ ...found, ...SUPPORT }, found);
  assert.ok("greet" in found, "greet");
  return found;
}

async function completion() {
  const ended = await follow("slow_compute", { seconds: 0.2, label: "drive" }, { task: { ttl: 90_000 } });
  assert.deepEqual(ended.states, ["working", "completed"]);
  assert.equal(ended.task.ttl, 90_000);
  assert.equal(ended.last.type, "result");
  const { content, isError, _meta } = ended.last.result;
  assert.equal(content[0].text, "drive: done after 0.2 s");
  assert.ok(!isError);
  assert.deepEqual(_meta, { [RELATED]: { taskId: ended.id } });
  const view = await tasks.getTask(ended.id);
  assertTask(view, "completed");
  assert.equal(view._meta?.[RELATED], undefined);
  assert.deepEqual(await result(ended.id), ended.last.result);
  return ended.states;
}

async function withoutTask() {
  const { content, _meta } = await client.callTool({ name: "slow_compute", arguments: { seconds: 0, label: "plain" } });
  assert.equal(content[0].text, "plain: done after 0 s");
  assert.equal(_meta?.[RELATED], undefined);
}

async function refused() {
  const [only, ...more] = await Array.fromAsync(
    tasks.callToolStream({ name: "greet", arguments: { name: "Ann" } }, CallToolResultSchema, { task: {} }),
  );
  assert.deepEqual([only.type, only.error?.code, more], ["error", -32601, []]);
  const call = { method: "tools/call", params: { name: "failing_job", arguments: {} } };
  assert.equal((await refusal(client.request(call, CallToolResultSchema))).code, -32601);
}

async function toolError() {
  const ended = await follow("failing_job", {});
  assert.deepEqual(ended.states, ["working", "failed"]);
  assert.equal(ended.view.statusMessage, "this job always fails");
  assert.equal(ended.last.type, "error");
  const { content, isError, _meta } = await result(ended.id);
  assert.deepEqual([content[0].text, isError], ["this job always fails", true]);
  assert.equal(_meta[RELATED].taskId, ended.id);
  const view = await tasks.getTask(ended.id);
  assert.deepEqual([view.status, view.statusMessage], ["failed", "this job always fails"]);
  return ended.states;
}

async function protocolError() {
  const ended = await follow("protocol_error_job", {});
  assert.equal(ended.states.at(-1), "failed");
  assert.equal(ended.view.statusMessage, "the job broke down");
  assert.equal(ended.last.type, "error");
  const { code, message } = await refusal(result(ended.id));
  assert.deepEqual([code, message], [-32603, "MCP error -32603: the job broke down"]);
  // As it comes to a caller that does not ask for a task.
  const plain = await refusal(client.callTool({ name: "protocol_error_job", arguments: {} }));
  assert.deepEqual([plain.code, plain.message], [code, message]);
  return ended.states;
}

async function elicitation() {
  let again;
  asked.length = 0;
  answer = async (params) => {
    const id = params._meta[RELATED].taskId;
    assert.equal(params.requestedSchema.properties.confirm.type, "boolean");
    assert.equal((await tasks.getTask(id)).status, "input_required");
    // Who asks for the result once more is not asked once more.
    again = result(id);
    await pause(300);
    return { action: "accept", content: { confirm: true } };
  };
  const ended = await follow("confirm_delete", { filename: "notes.txt" });
  assert.deepEqual(asked, [{ message: "Delete notes.txt?", task: ended.id }]);
  assert.deepEqual(ended.states, ["working", "input_required"]);
  assert.equal(ended.last.result?.content[0].text, "notes.txt is deleted");
  assert.deepEqual(await again, ended.last.result);
  assert.equal((await tasks.getTask(ended.id)).status, "completed");
  assert.equal(asked.length, 1);
  const told = () => pushed.filter((task) => task.taskId === ended.id).map((task) => task.status);
  await until("pushed", () => ["input_required", "completed"].every((status) => told().includes(status)));
  return { states: ended.states, told: told() };
}

async function declined() {
  asked.length = 0;
  answer = () => ({ action: "decline" });
  const ended = await follow("confirm_delete", { filename: "notes.txt" });
  assert.equal(ended.last.result?.content[0].text, "notes.txt is kept");
  assert.equal(asked.length, 1);
}

async function severalQuestions() {
  asked.length = 0;
  answer = ({ requestedSchema }) => ({
    action: "accept",
    content: "name" in requestedSchema.properties ? { name: "Ann" } : { confirm: true },
  });
  const ended = await follow("multi_input", {});
  assert.deepEqual(asked.map((one) => one.message).toSorted(), ["Are you sure?", "What is your name?"]);
  assert.deepEqual(new Set(asked.map((one) => one.task)), new Set([ended.id]));
  const { text } = ended.last.result.content[0];
  assert.equal(text, "user: accept {'name': 'Ann'}, sure: accept {'confirm': True}");
}

async function questionFirst() {
  asked.length = 0;
  answer = () => ({ action: "accept", content: { name: "Ann" } });
  const ended = await follow("test_tool_with_task", {});
  assert.deepEqual(asked, [{ message: "What is your name?", task: ended.id }]);
  assert.equal(ended.last.result?.content[0].text, "Hello, Ann! This was a task.");
}

async function cancel() {
  let reply;
  const ended = await follow("slow_compute", { seconds: 60, label: "drive" }, {
    onCreated: async ({ taskId }) => {
      reply = await tasks.cancelTask(taskId);
    },
  });
  assertTask(reply, "cancelled");
  assert.deepEqual(ended.states, ["working", "cancelled"]);
  assert.equal(ended.last.type, "error");
  const { code, message, data } = await refusal(result(ended.id));
  assert.deepEqual([code, message], [-32000, "MCP error -32000: Task cancelled"]);
  assert.equal(data._meta[RELATED].taskId, ended.id);
  assert.equal((await refusal(tasks.cancelTask(ended.id))).code, -32602);
  await pause(300);
  assert.equal((await tasks.getTask(ended.id)).status, "cancelled");
  return ended.states;
}

async function cancelWhileAsked() {
  const withdrawn = Promise.withResolvers();
  asked.length = 0;
  answer = async (params, extra) => {
    extra.signal.addEventListener("abort", withdrawn.resolve);
    const reply = await tasks.cancelTask(params._meta[RELATED].taskId);
    assert.equal(reply.status, "cancelled");
    await withdrawn.promise;
    return { action: "accept", content: { confirm: true } };
  };
  const ended = await follow("confirm_delete", { filename: "notes.txt" });
  assert.deepEqual([ended.last.type, ended.last.error?.code], ["error", -32000]);
  await withdrawn.promise;
  await pause(300);
  assert.equal((await tasks.getTask(ended.id)).status, "cancelled");
  assert.equal(asked.length, 1);
}

async function start() {
  const stream = tasks.callToolStream({ name: "slow_compute", arguments: { seconds: 0, label: "one of many" } });
  const { value } = await stream.next();
  await stream.return();
  assert.equal(value.type, "taskCreated", JSON.stringify(value));
  return value.task.taskId;
}

async function list() {
  if (kind === "http") {
    // Strict as it is, this client does not look for the capability.
    const { code } = await refusal(tasks.listTasks());
    assert.equal(code, -32601);
    return { code };
  }
  const started = await Promise.all(Array.from({ length: MANY }, start));
  const sizes = await assertListed(started, (cursor) => tasks.listTasks(cursor));
  const [newest] = (await tasks.listTasks()).tasks;
  assertTask(newest, newest.status);
  assert.equal((await refusal(tasks.listTasks("no such cursor"))).code, -32602);
  return { sizes };
}

async function progress() {
  const seen = [];
  const ended = await follow("count_up", { to: 4 }, { onprogress: (params) => seen.push(params) });
  const count = seen.length;
  assert.equal(ended.last.result?.content[0].text, "counted to 4");
  const numbers = seen.map((params) => params.progress);
  // What is overtaken while it is on its way is left out.
  assert.deepEqual(numbers, [1, 2, 3, 4].filter((number) => numbers.includes(number)));
  assert.ok(count > 1, "progress");
  assert.deepEqual(new Set(seen.map((params) => params.total)), new Set([4]));
  assert.deepEqual(new Set(seen.map((params) => params._meta?.[RELATED]?.taskId)), new Set([ended.id]));
  await pause(300);
  assert.equal(seen.length, count);
  return numbers;
}

async function unknown() {
  const id = "nobody's";
  const all = await Promise.all([tasks.getTask(id), result(id), tasks.cancelTask(id)].map(refusal));
  assert.deepEqual(all.map((one) => one.code), [-32602, -32602, -32602]);
}

async function understood() {
  assert.deepEqual(troubles, []);
}

await client.connect(transport);
try {
  await step("handshake", handshake);
  await step("support", support);
  const others = [
    step("completion", completion),
    step("without a task", withoutTask),
    step("refused", refused),
    step("tool error", toolError),
    step("protocol error", protocolError),
    step("cancel", cancel),
    step("progress", progress),
  ];
  // One after the other: there is one place to answer.
  await step("elicitation", elicitation);
  await step("declined", declined);
  await step("several questions", severalQuestions);
  await step("question first", questionFirst);
  await step("cancel while asked", cancelWhileAsked);
  await Promise.all(others);
  await step("list", list);
  await step("unknown", unknown);
  await step("understood", understood);
} finally {
  await client.close();
}
