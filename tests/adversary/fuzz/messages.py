"""Messages of every method, valid ones first, and what becomes of them when they are mutated."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from tests.adversary.fuzz import schema_values
from tests.adversary.fuzz.values import fields_of, hostile_value, mutate

EXTENSION = "io.modelcontextprotocol/tasks"
PREFIX = "io.modelcontextprotocol/"
V2025, V2026 = "2025-11-25", "2026-07-28"

FALLBACK_TOOLS = ("task_wait", "task_status", "task_result", "task_cancel", "task_answer")

QUICK_METHODS = (
    "initialize", "ping", "server/discover", "tools/list", "tasks/get", "tasks/list", "tasks/cancel",
    "tasks/update", "resources/list", "resources/read", "resources/templates/list", "prompts/list", "prompts/get",
    "completion/complete", "logging/setLevel", "nothing/at/all",
)  # fmt: skip
"""Methods that answer without waiting for a task."""

TASK_METHODS = ("tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "tasks/update")

NOTIFICATIONS = ("initialized", "cancelled", "progress", "roots/list_changed", "tasks/status", "tasks", "message", "x")

UNKNOWN_ID = "01a1e0587e4040711d28f872842ab102ad4fa6b73298"

_ids = count(1)


@dataclass
class Knowledge:
    """What a caller can name in messages."""

    tools: tuple[str, ...]
    own: deque[str] = field(default_factory=lambda: deque[str](maxlen=200))
    """Ids of tasks that the fuzzer made."""

    foreign: tuple[str, ...] = ()
    """Ids of tasks of another owner, which it should not know."""

    def task_id(self, random: Random) -> str:
        choices = [UNKNOWN_ID, *self.foreign]
        return random.choice([*self.own]) if self.own and random.random() < 0.6 else random.choice(choices)


def capabilities(random: Random) -> dict[str, Any]:
    """Return what a caller declares: tasks of either generation or none, and whether it can be asked."""
    chosen: dict[str, Any] = {}
    if random.random() < 0.6:
        chosen["extensions"] = {EXTENSION: {}}
    if random.random() < 0.5:
        chosen["elicitation"] = {form: {} for form in ("form", "url") if random.random() < 0.5}
    if random.random() < 0.3:
        chosen["sampling"] = {}
    if random.random() < 0.3:
        chosen["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    return chosen


def meta(random: Random) -> dict[str, Any]:
    """Return the `_meta` of a request of 2026, with other known keys at times."""
    fields: dict[str, Any] = {
        f"{PREFIX}protocolVersion": V2026,
        f"{PREFIX}clientInfo": {"name": "fuzzer", "version": "1"},
        f"{PREFIX}clientCapabilities": capabilities(random),
    }
    return fields | optional_meta(random)


def optional_meta(random: Random) -> dict[str, Any]:
    """Return keys that any request may have."""
    known: dict[str, Any] = {
        "progressToken": random.choice(("token", 1, 0, "")),
        "raincheck/idempotency-key": f"key-{random.randrange(20)}",
        "raincheck/input-key": "key",
        f"{PREFIX}related-task": {"taskId": UNKNOWN_ID},
        f"{PREFIX}logLevel": random.choice(("debug", "emergency")),
        f"{PREFIX}model-immediate-response": "now",
        f"{PREFIX}subscriptionId": 1,
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "a=b",
        "baggage": "a=b",
    }
    return {name: known[name] for name in known if random.random() < 0.12}


def arguments(random: Random, tool: str, known: Knowledge) -> dict[str, Any]:
    """Return arguments that the tool accepts. Unknown tools get anything."""
    text = random.choice(("a", "note"))
    by_tool: Mapping[str, dict[str, Any]] = {
        "echo": {"value": hostile_value(random, 1)},
        "nap": {"seconds": random.choice((0, 0.01, 0.2))},
        "confirm": {"question": text},
        "large": {"size": random.choice((0, 10, 70_000))},
        "wait": {"note": text},
        "typed": {
            "when": "2026-11-20T00:00:00Z",
            "count": 1,
            "colour": "red",
            "address": {"street": "x", "number": 1, "tags": ["a"]},
            "names": ["a", "b"],
        },
        "task_wait": {"task_id": known.task_id(random)},
        "task_status": {"task_id": known.task_id(random)},
        "task_result": {"task_id": known.task_id(random), "offset": 0},
        "task_cancel": {"task_id": known.task_id(random)},
        "task_answer": {"task_id": known.task_id(random), "answer": {"ok": True}},
    }
    return by_tool.get(tool, {"text": text})


def params(random: Random, method: str, version: str, known: Knowledge) -> dict[str, Any]:
    """Return params that the method accepts."""
    id_ = known.task_id(random)
    match method:
        case "initialize":
            client = {"name": "fuzzer", "version": "1"}
            return {"protocolVersion": V2025, "capabilities": capabilities(random), "clientInfo": client}
        case "tools/call":
            tool = random.choice((*known.tools, *FALLBACK_TOOLS))
            call: dict[str, Any] = {"name": tool, "arguments": arguments(random, tool, known)}
            return call | ({"task": {"ttl": 60_000}} if version == V2025 and random.random() < 0.6 else {})
        case "tasks/list":
            return random.choice(({}, {"cursor": "abc"}, {"cursor": id_}))
        case "tasks/update":
            answer = {"action": "accept", "content": {"ok": True, "note": "n"}}
            return {"taskId": id_, "inputResponses": {random.choice(("1", "key", "question-1")): answer}}
        case "subscriptions/listen":
            return {"notifications": {"taskIds": [id_], "toolsListChanged": random.random() < 0.5}}
        case "resources/read":
            return {"uri": random.choice((f"raincheck://tasks/{id_}", "file:///etc/passwd"))}
        case "prompts/get" | "completion/complete":
            return {"name": "x", "ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": ""}}
        case "logging/setLevel":
            return {"level": "debug"}
        case "notifications/cancelled":
            return {"requestId": random.randrange(50), "reason": "no"}
        case "notifications/progress":
            return {"progressToken": "token", "progress": 1}
        case _:
            return {"taskId": id_} if method in TASK_METHODS or method.startswith("notifications/tasks") else {}


def valid_message(random: Random, version: str, known: Knowledge) -> dict[str, Any]:
    """Return a message that the server understands, or that fits a schema."""
    if random.random() < 0.15:
        return schema_values.message(random, version)
    if random.random() < 0.06:
        method = f"notifications/{random.choice(NOTIFICATIONS)}"
        return {"jsonrpc": "2.0", "method": method, "params": params(random, method, version, known)}
    method = random.choice((*QUICK_METHODS, *TASK_METHODS, *(["tools/call"] * 9), "subscriptions/listen"))
    fields = params(random, method, version, known)
    keys = meta(random) if version == V2026 else optional_meta(random)
    return {
        "jsonrpc": "2.0",
        "id": next(_ids),
        "method": method,
        "params": {**fields, "_meta": keys} if keys else fields,
    }


def some_message(random: Random, version: str, known: Knowledge) -> Any:
    """Return a message that is valid, or has up to three faults."""
    times = random.choice((0, 0, 0, 0, 1, 1, 2, 3))
    return mutate(random, valid_message(random, version, known), times)


def with_new_id(message: Any, random: Random) -> Any:
    """Give a request an id that no other request has, so that its answer can be found."""
    fields = fields_of(message)
    if "id" not in fields:
        return message
    number = next(_ids)
    return {**fields, "id": number if random.random() < 0.7 else f"id-{number}"}


def may_wait(message: Any) -> bool:
    """Return whether a message may rightly stay without an answer for as long as a task works."""
    return fields_of(message).get("method") in ("tools/call", "tasks/result", "subscriptions/listen")
