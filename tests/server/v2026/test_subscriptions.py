"""`subscriptions/listen` for tasks: what is pushed, when, and when the stream ends."""

# pyright: reportUnusedFunction=false

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import Context

from raincheck import Retention, RetryPolicy, TaskContext, ToolError
from raincheck.testing import FakeClock
from tests.support.server.example import ExampleServer
from tests.support.server.tools import (
    ON_BOTH_TRANSPORTS,
    YES,
    add_gated,
    add_greeting,
    refusal,
    run_sql,
    text_of,
    without_meta,
)
from tests.support.server.transports import Message

pytestmark = pytest.mark.anyio


STAMP = {"lastUpdatedAt": "a claim or a lease may touch the task between two looks"}


def but_for_hints(task: Message) -> Message:
    """Without what may be another at each look, and what belongs to the message around it."""
    return {name: value for name, value in without_meta(task).items() if name not in ("pollIntervalMs", "resultType")}


@ON_BOTH_TRANSPORTS
@pytest.mark.requirement("notification-is-detailed-task")
async def test_each_push_equals_a_poll_at_that_moment(way: str) -> None:
    example_server = ExampleServer()
    gate = asyncio.Event()

    @example_server.tasks.tool()
    async def greet(task: TaskContext) -> dict[str, str]:
        await gate.wait()
        reply = await task.elicit("Who are you?", {"type": "object"})
        return {"said": str(reply.content)}

    statuses: list[str] = []
    last: Message = {}
    async with example_server.open_by(way) as caller:
        task_id = await caller.start("greet")
        async with caller.listening(task_id) as pushed:
            async for task in pushed:
                statuses.append(task["status"])
                if statuses == ["working"]:
                    # Of a task that stands still, so that both look at the same moment.
                    assert but_for_hints(task) | STAMP == but_for_hints(await caller.get(task_id)) | STAMP
                    gate.set()
                elif task["status"] == "input_required":
                    assert but_for_hints(task) | STAMP == but_for_hints(await caller.get(task_id)) | STAMP
                    await caller.update(task_id, {"elicit-0": YES})
                last = task
        assert statuses[0] == "working"
        assert "input_required" in statuses
        assert statuses[-1] == "completed"
        assert but_for_hints(last) == but_for_hints(await caller.get(task_id))


@pytest.mark.parametrize("ending", ["failed", "cancelled", "an error of its own"])
@pytest.mark.requirement("notification-is-detailed-task")
async def test_the_last_push_contains_the_outcome(ending: str) -> None:
    example_server = ExampleServer()
    begun = asyncio.Event()

    @example_server.tasks.tool(retry=RetryPolicy(attempts=1))
    async def end() -> None:
        begun.set()
        if ending == "failed":
            raise RuntimeError("hidden")
        if ending == "cancelled":
            await asyncio.Event().wait()
        raise ToolError("told")

    async with example_server.open() as caller:
        task_id = await caller.start("end")
        await begun.wait()
        if ending == "cancelled":
            await caller.cancel(task_id)
        async with caller.listening(task_id) as pushed:
            *_, last = [one async for one in pushed]
        assert last["status"] == ("completed" if ending == "an error of its own" else ending)
        assert but_for_hints(last) == but_for_hints(await caller.get(task_id))


async def test_the_first_push_is_the_current_task_even_if_it_has_ended() -> None:
    example_server = ExampleServer()
    add_gated(example_server).open.set()
    async with example_server.open() as caller:
        task_id = await caller.start("gated")
        ended = await caller.until(task_id)
        async with caller.listening(task_id) as pushed:
            (only,) = [one async for one in pushed]
        assert but_for_hints(only) == but_for_hints(ended)


@ON_BOTH_TRANSPORTS
async def test_a_stream_for_tasks_alone_ends_when_all_of_them_have_ended(way: str) -> None:
    example_server = ExampleServer()
    gates = [add_gated(example_server, name) for name in ("one", "two")]
    async with example_server.open_by(way) as caller:
        ids = [await caller.start("one"), await caller.start("two")]
        ended: list[str] = []
        async with caller.listening(*ids) as pushed:
            assert caller.agreed == {"taskIds": ids}
            gates[0].open.set()
            async for task in pushed:
                if task["status"] == "completed":
                    ended.append(task["taskId"])
                    gates[1].open.set()
        assert ended == ids


@ON_BOTH_TRANSPORTS
async def test_a_stream_for_other_kinds_too_has_both_and_outlasts_the_tasks(way: str) -> None:
    example_server = ExampleServer()
    gate = add_gated(example_server)

    @example_server.mcp.tool()
    async def grow(ctx: Context) -> str:
        await ctx.notify_tools_changed()
        return "grown"

    async with example_server.open_by(way) as caller:
        task_id = await caller.start("gated")
        message = caller.message(
            "subscriptions/listen", {"notifications": {"taskIds": [task_id], "toolsListChanged": True}}
        )
        messages = caller.transport.exchange(message, caller.routing(message))
        first = await anext(messages)
        assert first["method"] == "notifications/subscriptions/acknowledged"
        assert first["params"]["notifications"] == {"toolsListChanged": True, "taskIds": [task_id]}
        assert (await anext(messages))["params"]["status"] == "working"
        await caller.call("grow")
        assert await after_tasks(messages) == "notifications/tools/list_changed"
        gate.open.set()
        while (task := await anext(messages))["params"].get("status") != "completed":
            assert task["method"] == "notifications/tasks"
        await caller.call("grow")
        assert await after_tasks(messages) == "notifications/tools/list_changed"
        await messages.aclose()


async def after_tasks(messages: Any) -> str:
    """The next that is not of a task."""
    while (message := await anext(messages))["method"] == "notifications/tasks":
        pass
    return message["method"]


async def test_a_stream_for_no_task_is_acknowledged_and_ends() -> None:
    async with ExampleServer().open() as caller, caller.listening() as pushed:
        assert caller.agreed == {"taskIds": []}
        assert [one async for one in pushed] == []


async def test_a_subscriber_gets_the_end_of_a_task_without_retention() -> None:
    example_server = ExampleServer()
    gate = add_gated(example_server, retention=Retention(keep=timedelta(0)))
    async with example_server.open() as caller:
        task_id = await caller.start("gated")
        async with caller.listening(task_id) as pushed:
            await anext(pushed)
            gate.open.set()
            *_, last = [task async for task in pushed]
        assert last["status"] == "completed"
        assert (await refusal(caller, "tasks/get", {"taskId": task_id})).code == -32602


async def test_the_stream_of_a_task_that_is_gone_ends_quietly(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    example_server = ExampleServer(file, works=False)
    add_gated(example_server)
    async with example_server.open() as caller:
        task_id = await caller.start("gated")
        async with caller.listening(task_id) as pushed:
            assert (await anext(pushed))["status"] == "working"
            await asyncio.to_thread(run_sql, file, "DELETE FROM tasks")
            assert [task async for task in pushed] == []


async def test_many_reports_are_few_pushes() -> None:
    # A clock that stands still: reports are written now and then, and no time passes between these.
    example_server = ExampleServer(clock=FakeClock())
    gate = asyncio.Event()

    @example_server.tasks.tool()
    async def busy(task: TaskContext) -> str:
        await gate.wait()
        for number in range(2_000):
            await task.progress(number, 2_000, f"at {number}")
        return "done"

    async with example_server.open() as caller:
        task_id = await caller.start("busy")
        async with caller.listening(task_id) as pushed:
            first = await anext(pushed)
            gate.set()
            rest = [one async for one in pushed]
        assert first["status"] == "working"
        assert rest[-1]["status"] == "completed"
        assert len(rest) <= 5


async def test_an_invisible_change_is_not_pushed() -> None:
    example_server = ExampleServer()
    steps: asyncio.Queue[int] = asyncio.Queue()
    stored = asyncio.Event()

    @example_server.tasks.tool()
    async def quiet(task: TaskContext) -> str:
        while (step := await steps.get()) > 0:
            await task.variables.set("step", step)
            stored.set()
        return "done"

    async with example_server.open() as caller:
        task_id = await caller.start("quiet")
        async with caller.listening(task_id) as pushed:
            assert (await anext(pushed))["status"] == "working"
            for step in range(5, 0, -1):
                steps.put_nowait(step)
                await stored.wait()
                stored.clear()
                await caller.get(task_id)
            steps.put_nowait(0)
            assert [task["status"] async for task in pushed] == ["completed"]


@ON_BOTH_TRANSPORTS
@pytest.mark.filterwarnings("ignore:The logging capability is deprecated")
@pytest.mark.requirement("no-progress-on-listen")
async def test_neither_progress_nor_log_messages_are_sent_for_a_task(way: str) -> None:
    example_server = ExampleServer()
    gate = asyncio.Event()

    @example_server.tasks.tool()
    async def chatty(ctx: Context, task: TaskContext) -> str:
        await gate.wait()
        await ctx.report_progress(1, 2, "half")
        await ctx.info("half of it")  # pyright: ignore[reportDeprecated] - older tools do
        await task.progress(2, 2, "all")
        return "done"

    async with example_server.open_by(way) as caller:
        meta = {"progressToken": "mine", "io.modelcontextprotocol/logLevel": "debug"}
        task_id = await caller.start("chatty", meta=meta)
        async with caller.listening(task_id) as pushed:
            gate.set()
            *_, last = [one async for one in pushed]
        assert text_of(last["result"]) == "done"
        assert caller.notifications == []


async def test_changes_by_another_process_on_the_same_file_are_pushed(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    server, worker = ExampleServer(file, works=False), ExampleServer(file)
    add_greeting(server)
    received = add_greeting(worker)
    async with server.open() as caller, worker.open():
        task_id = await caller.start("greet")
        await caller.until(task_id, "input_required")
        await caller.update(task_id, {"elicit-0": YES})
        assert text_of(await caller.result(task_id)) == "Hello, Ada!"
        assert received == [("accept", {"name": "Ada"})]
