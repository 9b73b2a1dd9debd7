// Drives examples/conformance.py in 2025-11-25 with the package ext-tasks, on the TypeScript client 2.x. See steps.mjs.

import assert from "node:assert/strict";

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { createTaskSessionFromClient, resultFromTaskOutcome } from "@modelcontextprotocol/ext-tasks/client";

import { RELATED, assertListed, changes, kind, open, pause, refusal, step, withoutLate } from "./steps.mjs";

const MANY = 105;
const AS_TASK = { task: { preference: "require", retentionMs: 90_000 } };
const ANYTHING = { "~standard": { version: 1, vendor: "drive", validate: (value) => ({ value }) } };

const troubles = [];
const asked = [];
let answer;

async function begin() {
  // Without `versionNegotiation`, this client begins with `initialize`.
  const client = new Client({ name: "drive", version: "1" }, { capabilities: { elicitation: {} } });
  client.onerror = (error) => troubles.push(String(error));
  await client.connect(open(StreamableHTTPClientTransport, StdioClientTransport));
  const session = createTaskSessionFromClient(client, {
    endpointId: "drive",
    onError: (error) => troubles.push(String(error)),
    onInputRequest: async (request, context) => {
      asked.push({ kind: request.kind, message: request.params.message, scope: context.scope, task: context.taskId });
      return answer(request, context);
    },
  });
  return { client, session };
}

async function end({ client, session }) {
  await session.close();
  await client.close();
}

const { client, session } = await begin();

// The session fetches the result of a task only when that has completed, so the rest is fetched past it.
function result(id) {
  return client.request({ method: "tasks/result", params: { taskId: id } }, ANYTHING);
}

async function call(name, parameters) {
  const execution = await session.callTool(name, parameters, AS_TASK);
  assert.equal(execution.kind, "task");
  return execution;
}

async function settle(execution, options = {}) {
  const states = [];
  const onEvent = async (event) => {
    if (event.type !== "task") return;
    states.push(event.task.status);
    await options.onTask?.(event.task);
  };
  const { outcome, lastTask } = await execution.settle({ onEvent });
  return { id: execution.handle.taskId, states: changes(states), outcome, lastTask };
}

async function handshake() {
  assert.deepEqual([client.getProtocolEra(), client.getNegotiatedProtocolVersion()], ["legacy", "2025-11-25"]);
  assert.deepEqual(session.capabilities, {
    inventory: kind === "stdio" ? "server-list" : "known-handles",
    execution: true,
    cancellation: true,
    inputResponses: false,
    requestedRetention: true,
  });
  return session.capabilities;
}

async function completion() {
  const ended = await settle(await call("slow_compute", { seconds: 0.2, label: "drive" }));
  assert.deepEqual(ended.states, ["working", "completed"]);
  const { content, _meta } = resultFromTaskOutcome(ended.outcome);
  assert.equal(content[0].text, "drive: done after 0.2 s");
  assert.equal(_meta[RELATED].taskId, ended.id);
  const view = await session.task(ended.id).snapshot();
  assert.deepEqual([view.status, view.extensions], ["completed", {}]);
  // It may be kept for longer than that.
  assert.ok(view.retentionMs >= 90_000, "retentionMs");
  const again = await session.task(ended.id).result();
  assert.deepEqual(again.result.content, content);
  return ended.states;
}

async function withoutTask() {
  const execution = await session.callTool("slow_compute", { seconds: 0, label: "plain" });
  assert.equal(execution.kind, "immediate");
  const { outcome } = await execution.settle();
  assert.equal(resultFromTaskOutcome(outcome).content[0].text, "plain: done after 0 s");
}

async function toolError() {
  // It is only served as a task, and so called as one without being told.
  const execution = await session.callTool("failing_job", {});
  const ended = await settle(execution);
  assert.deepEqual(ended.states, ["working", "failed"]);
  assert.deepEqual([ended.outcome.status, ended.outcome.error.message], ["failed", "this job always fails"]);
  assert.equal(ended.lastTask.statusMessage, "this job always fails");
  const { content, isError, _meta } = await result(ended.id);
  assert.deepEqual([content[0].text, isError], ["this job always fails", true]);
  assert.equal(_meta[RELATED].taskId, ended.id);
  return ended.states;
}

async function protocolError() {
  const ended = await settle(await call("protocol_error_job", {}));
  assert.equal(ended.states.at(-1), "failed");
  assert.deepEqual([ended.outcome.status, ended.outcome.error.message], ["failed", "the job broke down"]);
  const { code, message } = await refusal(result(ended.id));
  assert.deepEqual([code, message], [-32603, "the job broke down"]);
  return ended.states;
}

async function elicitation() {
  const fetched = [];
  asked.length = 0;
  answer = async () => {
    await pause(300);
    return { action: "accept", content: { confirm: true } };
  };
  const ended = await settle(await call("confirm_delete", { filename: "notes.txt" }), {
    // A question comes on the stream of a request for the result. The session does not make one before the end.
    onTask: ({ taskId, status }) => {
      if (status === "input_required") fetched.push(result(taskId));
    },
  });
  assert.deepEqual(asked, [{ kind: "elicitation", message: "Delete notes.txt?", scope: "task", task: ended.id }]);
  assert.deepEqual(ended.states.filter((state) => state !== "working"), ["input_required", "completed"]);
  const { content } = resultFromTaskOutcome(ended.outcome);
  assert.equal(content[0].text, "notes.txt is deleted");
  assert.ok(fetched.length > 0, "fetched");
  for (const one of await Promise.all(fetched)) assert.deepEqual(one.content, content);
  assert.equal((await session.task(ended.id).snapshot()).status, "completed");
  return ended.states;
}

async function cancel() {
  const execution = await call("slow_compute", { seconds: 60, label: "drive" });
  const settled = settle(execution);
  await execution.cancel();
  const { id, outcome } = await settled;
  assert.equal(outcome.status, "cancelled");
  const { code, message, data } = await refusal(result(id));
  assert.deepEqual([code, message, data._meta[RELATED].taskId], [-32000, "Task cancelled", id]);
  await pause(300);
  assert.equal((await session.task(id).snapshot()).status, "cancelled");
  assert.equal((await session.task(id).result()).status, "cancelled");
  assert.equal((await refusal(session.cancelTask(id))).code, -32602);
}

async function cancelByAnother() {
  const execution = await call("confirm_delete", { filename: "notes.txt" });
  const settled = settle(execution);
  await session.task(execution.handle.taskId).cancel();
  const { outcome, lastTask } = await settled;
  assert.deepEqual([outcome.status, lastTask.status], ["cancelled", "cancelled"]);
}

async function resume() {
  const execution = await call("slow_compute", { seconds: 1, label: "resumed" });
  let reference;
  await execution.handoff((serialized) => {
    reference = structuredClone(serialized);
  });
  const other = await begin();
  try {
    const { outcome } = await settle(await other.session.resumeTask(reference));
    assert.equal(resultFromTaskOutcome(outcome).content[0].text, "resumed: done after 1 s");
  } finally {
    await end(other);
  }
}

async function list() {
  if (kind === "http") {
    // This one looks for the capability, and does not ask.
    const { message } = await refusal(session.listTasks());
    assert.equal(message, "Server task inventory is not supported by this session");
    return { message };
  }
  const start = async () => {
    const execution = await call("slow_compute", { seconds: 0, label: "one of many" });
    await execution.detach();
    return execution.handle.taskId;
  };
  const started = await Promise.all(Array.from({ length: MANY }, start));
  const sizes = await assertListed(started, (cursor) => session.listTasks(cursor));
  assert.equal((await refusal(session.listTasks("no such cursor"))).code, -32602);
  return { sizes };
}

async function unknown() {
  const task = session.task("nobody's");
  const all = await Promise.all([task.snapshot(), result("nobody's"), task.cancel()].map(refusal));
  assert.deepEqual(all.map((one) => one.code), [-32602, -32602, -32602]);
}

async function understood() {
  assert.deepEqual(withoutLate(troubles), []);
}

try {
  await step("handshake", handshake);
  await Promise.all([
    step("completion", completion),
    step("without a task", withoutTask),
    step("tool error", toolError),
    step("protocol error", protocolError),
    step("elicitation", elicitation),
    step("cancel", cancel),
    step("cancel by another", cancelByAnother),
    step("resume", resume),
  ]);
  await step("list", list);
  await step("unknown", unknown);
  await step("understood", understood);
} finally {
  await end({ client, session });
}
