// What the scripts that drive a server in 2025-11-25 have in common. A script takes its server from the command line:
//
//     node SCRIPT http URL
//     node SCRIPT stdio COMMAND [ARGUMENT...]

import assert from "node:assert/strict";

const PATIENCE = 30_000;

export const RELATED = "io.modelcontextprotocol/related-task";

export const [kind, ...place] = process.argv.slice(2);
if (!["http", "stdio"].includes(kind)) throw new Error("usage: node SCRIPT http URL | stdio COMMAND [ARGUMENT...]");

// A transport to the server, out of the classes of whichever package.
export function open(Http, Stdio) {
  if (kind === "http") return new Http(new URL(place[0]));
  return new Stdio({ command: place[0], args: place.slice(1), stderr: "inherit" });
}

// Do a step, and print a line of JSON that says how it went. A step that throws, or takes forever, has failed.
export async function step(name, work) {
  const begun = Date.now();
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done after ${PATIENCE} ms`)), PATIENCE);
  });
  try {
    const found = await Promise.race([work(), late]);
    report({ step: name, ok: true, ms: Date.now() - begun, found });
  } catch (error) {
    report({ step: name, ok: false, ms: Date.now() - begun, found: error?.stack ?? String(error) });
    process.exitCode = 1;
  } finally {
    clearTimeout(timer);
  }
}

function report(line) {
  console.log(JSON.stringify(line));
}

// What a promise is refused with.
export async function refusal(promise) {
  const { code, message, data } = await promise.then(
    (value) => assert.fail(`not refused, but ${JSON.stringify(value)}`),
    (error) => error,
  );
  return { code, message, data };
}

export async function until(what, holds) {
  const deadline = Date.now() + PATIENCE / 2;
  while (!holds()) {
    assert(Date.now() < deadline, `${what}: still not so`);
    await pause(10);
  }
}

export function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

// A list of states, each once for as long as it lasts.
export function changes(states) {
  return states.filter((state, index) => state !== states[index - 1]);
}

// Told of a change while it asks for one, a session of ext-tasks gives its request up; the answer may be on its way.
export function withoutLate(troubles) {
  return troubles.filter((trouble) => !trouble.startsWith("Error: Received a response for an unknown message ID"));
}

// What is said of a task wherever there is one, whatever its state.
export function assertTask(task, status) {
  assert.equal(task.status, status);
  assert.match(task.taskId, /^\S{22,}$/);
  assert.ok(Number.isSafeInteger(task.pollInterval) && task.pollInterval > 0, "pollInterval");
  assert.ok(Date.parse(task.createdAt) <= Date.parse(task.lastUpdatedAt), "createdAt, lastUpdatedAt");
}

// More tasks than fit on a page are listed by their caller, page by page: all that were started, and each once.
export async function assertListed(started, list) {
  const sizes = [];
  const listed = [];
  let cursor;
  do {
    const page = await list(cursor);
    sizes.push(page.tasks.length);
    listed.push(...page.tasks);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  assert.ok(sizes.length > 1, "one page");
  const ids = listed.map((task) => task.taskId);
  assert.equal(new Set(ids).size, ids.length);
  assert.deepEqual(started.filter((id) => !ids.includes(id)), []);
  const times = listed.map((task) => Date.parse(task.createdAt));
  assert.deepEqual(times, times.toSorted((one, other) => other - one));
  return sizes;
}
