// Lets examples/conformance.py ask clients of 2025-11-25 that answer with tasks of their own: the one of the TypeScript
// SDK 1.x, and the client 2.x with the receiver of ext-tasks. See steps.mjs.

import assert from "node:assert/strict";

import { Client as NewClient, StreamableHTTPClientTransport as NewHttp } from "@modelcontextprotocol/client";
import { StdioClientTransport as NewStdio } from "@modelcontextprotocol/client/stdio";
import { createTaskSessionFromClient, resultFromTaskOutcome } from "@modelcontextprotocol/ext-tasks/client";
import { bindTaskReceiver } from "@modelcontextprotocol/ext-tasks/receiver";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { InMemoryTaskStore } from "@modelcontextprotocol/sdk/experimental/tasks";
import {
  CallToolResultSchema,
  CreateMessageRequestSchema,
  ElicitRequestSchema,
} from "@modelcontextprotocol/sdk/types.js";

import { RELATED, open, pause, step, until, withoutLate } from "./steps.mjs";

const POLL = 60;
const THINKING = 400;
const CAPABILITIES = { elicitation: {}, sampling: {} };
const TASKS = {
  list: {},
  cancel: {},
  requests: { elicitation: { create: {} }, sampling: { createMessage: {} } },
};
const ANYTHING = { "~standard": { version: 1, vendor: "drive", validate: (value) => ({ value }) } };

const YES = { action: "accept", content: { confirm: true } };
const SUMMARY = { model: "abacus", role: "assistant", content: { type: "text", text: "in short" } };

const USER = {
  call: { name: "confirm_delete", arguments: { filename: "notes.txt" } },
  question: "elicitation/create",
  text: "notes.txt is deleted",
};
const MODEL = {
  call: { name: "summarize", arguments: { text: "at length" } },
  question: "sampling/createMessage",
  text: "in short",
};

// A transport that notes the requests that come over it.
function listenTo(transport, requests) {
  transport.onmessage = (message) => {
    if ("method" in message && "id" in message) requests.push(message);
  };
  return transport;
}

// The client was asked once, with a task; that was looked at while it worked, and its result fetched once.
function assertAsked(requests, method, task) {
  const [question, ...others] = requests;
  assert.equal(question.method, method);
  assert.equal(typeof question.params.task, "object");
  assert.equal(question.params._meta[RELATED].taskId, task);
  const methods = others.map((request) => request.method);
  const looks = methods.filter((one) => one === "tasks/get").length;
  assert.ok(looks > 1 && looks <= THINKING / POLL + 2, `${looks} looks`);
  assert.deepEqual(methods, [...Array(looks).fill("tasks/get"), "tasks/result"]);
  assert.equal(new Set(others.map((request) => request.params.taskId)).size, 1);
  return methods;
}

async function beginOld() {
  const requests = [];
  const troubles = [];
  const store = new InMemoryTaskStore();
  // With a queue of messages too, this client would put its answers there, since they belong to a task; for itself.
  const client = new Client(
    { name: "drive", version: "1" },
    { capabilities: { ...CAPABILITIES, tasks: TASKS }, taskStore: store },
  );
  client.onerror = (error) => troubles.push(String(error));
  const answering = (answer) => async (_, extra) => {
    const task = await extra.taskStore.createTask({ ttl: extra.taskRequestedTtl, pollInterval: POLL });
    setTimeout(() => extra.taskStore.storeTaskResult(task.taskId, "completed", answer).catch(() => {}), THINKING);
    return { task };
  };
  client.setRequestHandler(ElicitRequestSchema, answering(YES));
  client.setRequestHandler(CreateMessageRequestSchema, answering(SUMMARY));
  await client.connect(listenTo(open(StreamableHTTPClientTransport, StdioClientTransport), requests));
  return { client, requests, troubles, store };
}

function callOld(client, { call }) {
  return client.experimental.tasks.callToolStream(call, CallToolResultSchema, { task: {} });
}

async function askOld({ client, requests }, asking) {
  requests.length = 0;
  const messages = await Array.fromAsync(callOld(client, asking));
  assert.equal(messages.at(-1).result?.content[0].text, asking.text);
  return assertAsked(requests, asking.question, messages[0].task.taskId);
}

async function withdrawOld({ client, requests, store }) {
  requests.length = 0;
  const before = store.getAllTasks().length;
  const statuses = () => store.getAllTasks().slice(before).map((task) => task.status);
  for await (const { task } of callOld(client, USER)) {
    if (task?.status !== "input_required") continue;
    // The next thing that the stream does is to wait for the result, so it is cancelled beside.
    void until("asked", () => statuses().length > 0).then(() => client.experimental.tasks.cancelTask(task.taskId));
  }
  await until("withdrawn", () => statuses().includes("cancelled"));
  await pause(THINKING);
  assert.deepEqual(statuses(), ["cancelled"]);
  assert.equal(requests.at(-1).method, "tasks/cancel");
  return requests.map((request) => request.method);
}

async function beginNew() {
  const requests = [];
  const troubles = [];
  const onError = (error) => troubles.push(String(error));
  const client = new NewClient({ name: "drive", version: "1" }, { capabilities: CAPABILITIES });
  client.onerror = onError;
  const later = (answer) => () => pause(THINKING).then(() => answer);
  const receiver = bindTaskReceiver(client, {
    methods: { "elicitation/create": true, "sampling/createMessage": true },
    elicitation: later(YES),
    sampling: later(SUMMARY),
    pollIntervalMs: POLL,
    onError,
  });
  client.registerCapabilities({ tasks: receiver.capabilities });
  await client.connect(listenTo(open(NewHttp, NewStdio), requests));
  const session = createTaskSessionFromClient(client, { endpointId: "drive", onError });
  return { client, requests, troubles, receiver, session };
}

async function askNew({ client, requests, session }, { call, question, text }) {
  requests.length = 0;
  const execution = await session.callTool(call.name, call.arguments, { task: { preference: "require" } });
  const { taskId } = execution.handle;
  // A question comes on the stream of a request for the result. The session does not make one before the end.
  const result = client.request({ method: "tasks/result", params: { taskId } }, ANYTHING);
  const { outcome } = await execution.settle();
  const { content } = resultFromTaskOutcome(outcome);
  assert.equal(content[0].text, text);
  assert.deepEqual((await result).content, content);
  return assertAsked(requests, question, taskId);
}

const [one, other] = await Promise.all([beginOld(), beginNew()]);
try {
  await step("1.x elicitation", () => askOld(one, USER));
  await step("1.x sampling", () => askOld(one, MODEL));
  await step("1.x withdrawn", () => withdrawOld(one));
  await step("1.x understood", async () => assert.deepEqual(one.troubles, []));
  await step("2.x elicitation", () => askNew(other, USER));
  await step("2.x sampling", () => askNew(other, MODEL));
  await step("2.x understood", async () => assert.deepEqual(withoutLate(other.troubles), []));
} finally {
  one.store.cleanup();
  await other.session.close();
  other.receiver.close();
  await Promise.all([one.client.close(), other.client.close()]);
}
