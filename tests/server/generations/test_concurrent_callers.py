"""One server answers concurrent callers of both generations, each in its own format, and ends all tasks correctly."""

# pyright: reportUnusedFunction=false

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.shared.exceptions import MCPError

from raincheck import TaskContext, ToolError, open_store
from raincheck.testing import check_invariants
from tests.server.v2025.elicitation.test_questions import SAID, add_all_kinds
from tests.support.server.caller_v2026 import Caller, Refused
from tests.support.server.example import QUICK, ExampleServer
from tests.support.server.tools import YES, add_greeting, text_of
from tests.support.server.transports import HttpTransport, Message, over_http
from tests.support.server.v2025.elicitation_caller import RELATED, ElicitationCaller, field_names, http_session

pytestmark = pytest.mark.anyio

PAIRS = 20
"""Of callers of one owner, one of each generation."""

ASKED: dict[str, Any] = {
    "Who are you?": YES,
    "Are you sure?": {"action": "accept", "content": {"sure": True}},
}

EARLIER_WORDS = frozenset(
    {"task", "ttl", "pollInterval", "execution", "nextCursor"}
    | {RELATED, "io.modelcontextprotocol/model-immediate-response"}
)

TEXTS = {
    "quick": "done",
    "broken": "out of stock",
    "greet": "Hello, Ada!",
    "multi_input": "{'name': 'Ada'} {'sure': True}",
}
QUESTIONS = {"greet": 1, "sample": 1, "multi_input": 2}


class LaterWire(HttpTransport):
    """Lets no word of the earlier generation pass."""

    async def exchange(self, message: Message, headers: Mapping[str, str]) -> AsyncGenerator[Message]:
        async for one in super().exchange(message, headers):
            earlier = EARLIER_WORDS.intersection(field_names(one))
            assert not earlier, f"{earlier} in {one}"
            yield one


def make(store: str | Path = "memory:") -> ExampleServer:
    server = ExampleServer(store, settings=replace(QUICK, concurrency=16, park_after=5.0))
    add_greeting(server, inline_for=0)
    add_all_kinds(server)

    @server.tasks.tool(inline_for=0)
    async def quick(task: TaskContext) -> str:
        await task.progress(1, 2, "half of it")
        return "done"

    @server.tasks.tool(inline_for=0)
    async def broken() -> str:
        raise ToolError("out of stock")

    @server.tasks.tool(inline_for=0)
    async def closed() -> str:
        raise MCPError(-32050, "closed", {"until": "Monday"})

    @server.tasks.tool(inline_for=0)
    async def stuck() -> None:
        await asyncio.Event().wait()

    return server


TOOLS = ("quick", "broken", "closed", "greet", "sample", "multi_input", "stuck")

ENDS = dict.fromkeys(TOOLS, "completed") | {"closed": "failed", "stuck": "cancelled"}
EARLIER_ENDS = {**ENDS, "broken": "failed"}
"""Where a tool's own error is a failure."""


def answer_to(method: str, params: Message) -> dict[str, Any]:
    return SAID if method == "sampling/createMessage" else ASKED[params["message"]]


def check_result(tool: str, result: Message) -> None:
    assert result.get("isError", False) is (tool == "broken")
    assert text_of(result) == TEXTS[tool] if tool in TEXTS else '"model": "m"' in text_of(result)


class Earlier:
    """A caller of 2025-11-25, and its tasks by their ids."""

    def __init__(self, caller: ElicitationCaller) -> None:
        self.caller = caller
        self.tasks: dict[str, str] = {}

    async def run(self) -> None:
        async def answer_all() -> None:
            while True:
                asked = await self.caller.question()
                assert asked.task_id in self.tasks
                await self.caller.reply(asked, result=answer_to(asked.method, asked.params))

        for tool in TOOLS:
            self.tasks[await self.caller.start(tool)] = tool
        answering = asyncio.create_task(answer_all())
        async with asyncio.TaskGroup() as group:
            for task_id, tool in self.tasks.items():
                group.create_task(self._see_through(task_id, tool))
        answering.cancel()
        await asyncio.wait([answering])
        assert answering.cancelled()

    async def _see_through(self, task_id: str, tool: str) -> None:
        waiting = await self.caller.wait(task_id)
        if tool == "stuck":
            assert (await self.caller.cancel(task_id))["status"] == "cancelled"
        answer = await waiting.answer
        if tool in ("stuck", "closed"):
            assert answer["error"]["code"] == (-32000 if tool == "stuck" else -32050)
        else:
            assert answer["result"]["_meta"][RELATED] == {"taskId": task_id}
            check_result(tool, answer["result"])
        await self.check(task_id, tool)

    async def check(self, task_id: str, tool: str) -> None:
        task = await self.caller.get(task_id)
        assert task["status"] == EARLIER_ENDS[tool]
        assert "result" not in task


class Later:
    """A caller of 2026-07-28, and its tasks by their ids."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.tasks: dict[str, str] = {}

    async def run(self) -> None:
        for tool in TOOLS:
            self.tasks[await self.caller.start(tool)] = tool
        async with self.caller.listening(*self.tasks) as pushed:
            stuck = next(task_id for task_id, tool in self.tasks.items() if tool == "stuck")
            await self.caller.cancel(stuck)
            async for task in pushed:
                requests = task.get("inputRequests", {})
                answers = {key: answer_to(one["method"], one["params"]) for key, one in requests.items()}
                if answers:
                    await self.caller.update(task["taskId"], answers)
        for task_id, tool in self.tasks.items():
            await self.check(task_id, tool)

    async def check(self, task_id: str, tool: str) -> None:
        task = await self.caller.get(task_id)
        assert task["status"] == ENDS[tool]
        if tool == "closed":
            assert task["error"] == {"code": -32050, "message": "closed", "data": {"until": "Monday"}}
        elif tool != "stuck":
            check_result(tool, task["result"])


@asynccontextmanager
async def pair(transport: HttpTransport, name: str) -> AsyncGenerator[tuple[ElicitationCaller, Caller]]:
    """Two callers of one owner, each of its generation."""
    headers = {"authorization": f"Bearer {name}"}
    async with http_session(transport, headers) as (old, _):
        yield old, Caller(LaterWire(transport.url, transport.client), headers=headers)


async def run_pair(url: str, name: str) -> None:
    """Both do all there is to do, at the same time; and then each looks at what the other did."""
    # With connections of their own: one pool for all of them looks through all for each request. None is encrypted.
    client = httpx2.AsyncClient(timeout=300, trust_env=False, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    async with client, pair(HttpTransport(url, client), name) as (old, new):
        earlier, later = Earlier(old), Later(new)
        async with asyncio.TaskGroup() as group:
            group.create_task(earlier.run())
            group.create_task(later.run())
        assert sorted(await old.list_ids()) == sorted([*earlier.tasks, *later.tasks])
        for task_id, tool in earlier.tasks.items():
            await later.check(task_id, tool)
        for task_id, tool in later.tasks.items():
            await earlier.check(task_id, tool)
        asked = Counter(one.task_id for one in old.all_requests)
        assert asked == {one: QUESTIONS[tool] for one, tool in earlier.tasks.items() if tool in QUESTIONS}


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_both_generations_under_load_get_their_own_format_and_all_tasks_end(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    server = make("memory:" if kind == "memory" else file)
    async with over_http(server.mcp.streamable_http_app()) as transport, asyncio.TaskGroup() as group:
        for number in range(PAIRS):
            group.create_task(run_pair(transport.url, f"owner {number}"))
    if kind == "sqlite":
        async with open_store(file) as store:
            await check_invariants(store)


@asynccontextmanager
async def both() -> AsyncGenerator[tuple[ExampleServer, ElicitationCaller, Caller]]:
    server = make()
    async with over_http(server.mcp.streamable_http_app()) as transport, pair(transport, "tom") as (old, new):
        yield server, old, new


async def test_a_task_started_in_one_generation_reads_the_same_in_the_other() -> None:
    async with both() as (_, old, new):
        begun = await old.call("greet", task={"ttl": 90_000_000})
        task_ids = [begun["task"]["taskId"], await new.start("greet")]
        for task_id in task_ids:
            waiting = await old.wait(task_id)
            question = await old.question()
            shown = await new.get(task_id)
            (request,) = shown["inputRequests"].values()
            assert request["method"] == question.method
            assert request["params"] == {name: one for name, one in question.params.items() if name != "_meta"}
            await old.reply(question, result=YES)
            result = await waiting.result()
            earlier, later = await old.get(task_id), await new.get(task_id)
            for name in ("taskId", "status", "createdAt", "lastUpdatedAt"):
                assert earlier[name] == later[name]
            assert (earlier["ttl"], earlier["pollInterval"]) == (later["ttlMs"], later["pollIntervalMs"])
            assert without_words_of_one(result) == without_words_of_one(later["result"])


def without_words_of_one(result: Message) -> Message:
    """Return a result without the fields of only one generation."""
    return {name: value for name, value in result.items() if name not in ("resultType", "_meta")}


async def test_a_task_cancelled_in_one_generation_is_cancelled_in_the_other() -> None:
    async with both() as (_, old, new):
        task_id = await new.start("stuck")
        assert (await old.cancel(task_id))["status"] == "cancelled"
        assert (await new.get(task_id))["status"] == "cancelled"
        task_id = await old.start("stuck")
        waiting = await old.wait(task_id)
        await new.cancel(task_id)
        with pytest.raises(Refused) as refused:
            await waiting.result()
        assert refused.value.code == -32000
        # A second time it is a refusal to one, and nothing to the other.
        with pytest.raises(Refused, match="already cancelled") as refused:
            await old.cancel(task_id)
        assert refused.value.code == -32602
        await new.cancel(task_id)


async def test_a_tool_error_is_a_failure_in_2025_and_a_result_in_2026() -> None:
    async with both() as (_, old, new):
        for task_id in (await old.start("broken"), await new.start("broken")):
            result = await old.result(task_id)
            assert (result["isError"], text_of(result)) == (True, "out of stock")
            task = await old.get(task_id)
            assert (task["status"], task["statusMessage"]) == ("failed", "out of stock")
            assert (await new.get(task_id))["status"] == "completed"
            assert text_of((await new.get(task_id))["result"]) == "out of stock"


async def test_a_question_refused_in_2025_is_an_error_in_2026() -> None:
    async with both() as (_, old, new):
        task_id = await new.start("greet")
        waiting = await old.wait(task_id)
        await old.reply(await old.question(), error={"code": -1, "message": "not now", "data": [1]})
        with pytest.raises(Refused, match="not now"):
            await waiting.result()
        task = await new.get(task_id)
        assert (task["status"], task["error"]) == ("failed", {"code": -1, "message": "not now", "data": [1]})
