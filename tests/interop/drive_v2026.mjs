// Drives examples/conformance.py with the official TypeScript client, and prints a line of JSON for every step:
//
//     node drive.mjs http URL
//     node drive.mjs stdio COMMAND [ARGUMENT...]

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { createTaskSessionFromClient, resultFromTaskOutcome } from "@modelcontextprotocol/ext-tasks/client";

const PROTOCOL = "2026-07-28";
const CLIENT = { name: "drive", version: "1" };
const CAPABILITIES = { elicitation: {}, extensions: { "io.modelcontextprotocol/tasks": {} } };

function open([kind, ...rest]) {
  if (kind === "http") return new StreamableHTTPClientTransport(new URL(rest[0]));
  if (kind === "stdio") return new StdioClientTransport({ command: rest[0], args: rest.slice(1), stderr: "inherit" });
  throw new Error("usage: node drive.mjs http URL | stdio COMMAND [ARGUMENT...]");
}

// The client's own requests don't know results that are tasks, so those of a task go past it, over its transport.
function besideClient(transport) {
  const waiting = new Map();
  const forward = transport.onmessage;
  let count = 0;
  transport.onmessage = (message, extra) => {
    const settle = waiting.get(message.id);
    if (settle === undefined || "method" in message) return forward(message, extra);
    waiting.delete(message.id);
    settle("error" in message ? { kind: "error", error: message.error } : { kind: "result", result: message.result });
  };
  return async ({ method, params }) => {
    const id = `beside-${++count}`;
    const response = new Promise((resolve) => waiting.set(id, resolve));
    await transport.send({ jsonrpc: "2.0", id, method, params });
    return response;
  };
}

function check(holds, step, found) {
  console.log(JSON.stringify({ step, ok: Boolean(holds), found }));
  if (!holds) process.exitCode = 1;
}

async function settle(session, tool, parameters) {
  const execution = await session.callTool(tool, parameters);
  const states = [];
  const onEvent = (event) => {
    if (event.type === "task") states.push(event.task.status);
  };
  const { outcome } = await execution.settle({ onEvent });
  const result = resultFromTaskOutcome(outcome);
  return { kind: execution.kind, states, text: result.content[0].text };
}

async function compute(session) {
  const found = await settle(session, "slow_compute", { seconds: 0.2, label: "drive" });
  check(found.kind === "task" && found.text.startsWith("drive: done"), "compute", found);
}

async function confirm(session, asked) {
  const found = await settle(session, "confirm_delete", { filename: "notes.txt" });
  const once = asked.length === 1 && asked[0].message === "Delete notes.txt?";
  check(once && found.text === "notes.txt is deleted", "confirm", { ...found, asked });
}

async function cancel(session) {
  const execution = await session.callTool("slow_compute", { seconds: 60, label: "drive" });
  const settled = execution.settle();
  await execution.cancel();
  const { outcome } = await settled;
  const { status } = await session.task(execution.handle.taskId).snapshot();
  check(outcome.status === "cancelled" && status === "cancelled", "cancel", { outcome: outcome.status, status });
}

const transport = open(process.argv.slice(2));
const client = new Client(CLIENT, { capabilities: CAPABILITIES, versionNegotiation: { mode: { pin: PROTOCOL } } });
await client.connect(transport);
const asked = [];
const session = createTaskSessionFromClient(client, {
  endpointId: "drive",
  rawDispatch: besideClient(transport),
  v2RequestFraming: { protocolVersion: PROTOCOL, clientInfo: CLIENT, clientCapabilities: CAPABILITIES },
  onInputRequest: async (request) => {
    asked.push(request.params);
    return { action: "accept", content: { confirm: true } };
  },
});
try {
  await compute(session);
  await confirm(session, asked);
  await cancel(session);
} finally {
  await session.close();
  await client.close();
}
