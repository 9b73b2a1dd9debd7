"""The audit log has a line for each important event of a task, and none of the task's content."""

import json
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from raincheck import Engine, Quota, RetryPolicy, TaskContext, Toolbox, ToolError
from raincheck.core.commands import Cancel
from raincheck.core.lifecycle import Phase
from raincheck.core.records import Tool
from raincheck.errors import StoreUnavailable
from raincheck.server.audit import AuditLog
from raincheck.stores.base import Store
from raincheck.stores.commit import apply
from raincheck.stores.memory import MemoryStore
from raincheck.stores.requests import Page, TaskQuery
from raincheck.testing import FakeClock, StoreHarness
from raincheck.testing.harness import EVERYTHING
from tests.support.server.caller_v2026 import Caller, Refused
from tests.support.server.example import QUICK, ExampleServer

pytestmark = pytest.mark.anyio

LOCAL = '["local"]'

PAYLOAD = "pay-load"
"""Occurs in every argument, question, answer and error here, and must be in no line."""

YES: dict[str, Any] = {"elicit-0": {"action": "accept", "content": {"why": PAYLOAD}}}


class Lines:
    """The lines of the audit log."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    @property
    def records(self) -> list[Any]:
        return [record for record in self._caplog.records if record.name == "raincheck.audit"]

    def of(self, task_id: str) -> list[dict[str, Any]]:
        """Return the events of a task, without the owner where that is clear."""
        fields = [record.audit for record in self.records if record.audit.get("task") == task_id]
        assert all(one.pop("owner") == LOCAL for one in map(dict, fields))
        return [{name: value for name, value in one.items() if name not in ("owner", "task")} for one in fields]

    def events(self, task_id: str) -> list[str]:
        return [one["event"] for one in self.of(task_id)]

    def refusals(self) -> list[dict[str, Any]]:
        return [record.audit for record in self.records if record.audit["event"] == "refused"]


@pytest.fixture
async def lines(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Lines]:
    """The lines, which are looked at once more at the end: none has anything of a task's content."""
    caplog.set_level(logging.DEBUG, "raincheck.audit")
    yield Lines(caplog)
    records: list[Any] = [record for record in caplog.get_records("call") if record.name == "raincheck.audit"]
    assert records
    for record in records:
        assert PAYLOAD not in f"{record.getMessage()} {record.__dict__}"
        assert record.exc_info is None
        event, _, words = record.getMessage().partition(" ")
        assert event == record.audit["event"]
        # Each of the fields is a word: as it is, or in quotes.
        for name, value in record.audit.items():
            assert name == "event" or f" {name}={value} " in f" {words} " or f"{name}={json.dumps(value)}" in words


def make(store: str | Path = "memory:", **options: Any) -> ExampleServer:
    server = ExampleServer(store, **options)

    @server.tasks.tool()
    async def say(text: str) -> dict[str, str]:
        return {"said": text}

    @server.tasks.tool(inline_for=30)
    async def say_at_once(text: str) -> str:
        return text

    @server.tasks.tool(inline_for=30)
    async def refuse(text: str) -> str:
        raise ToolError(text)

    @server.tasks.tool(inline_for=30)
    async def fail(text: str) -> str:
        raise MCPError(-32050, text, {"text": text})

    @server.tasks.tool(retry=RetryPolicy(attempts=1))
    async def crash(text: str) -> str:
        raise LookupError(text)

    @server.tasks.tool()
    async def ask(text: str, task: TaskContext) -> str:
        await task.status(text)
        return str(await task.elicit(text, {"type": "object"}))

    @server.tasks.tool(timeout=0.1)
    async def ask_in_time(text: str, task: TaskContext) -> str:
        return str(await task.elicit(text, {"type": "object"}))

    @server.tasks.tool()
    async def parent(generations: int, task: TaskContext) -> str:
        child = await task.spawn("parent", {"generations": generations - 1}) if generations else None
        return str(await (task.elicit(PAYLOAD, {"type": "object"}) if child is None else child.result()))

    server.tasks.enable("*")
    return server


async def test_a_completed_task_has_a_line_for_its_start_its_end_and_each_retrieval(
    lines: Lines,
) -> None:
    server = make()
    async with server.open() as caller:
        task_id = await caller.start("say", {"text": PAYLOAD})
        await server.tasks.engine.wait(task_id)
        expected = [
            {"event": "created", "tool": "say"},
            {"event": "ended", "tool": "say", "how": "completed"},
        ]
        assert lines.of(task_id) == expected
        for _ in range(2):
            assert (await caller.get(task_id))["status"] == "completed"
            expected.append({"event": "retrieved", "tool": "say"})
            assert lines.of(task_id) == expected


async def test_polling_a_working_task_is_not_a_retrieval(lines: Lines) -> None:
    async with make().open() as caller:
        task_id = await caller.start("ask", {"text": PAYLOAD})
        await caller.until(task_id, "input_required")
        await caller.get(task_id)
        assert lines.events(task_id) == ["created"]
        await caller.update(task_id, YES)
        await caller.result(task_id)
        # Pushed, and polled.
        assert sorted(lines.events(task_id)) == ["created", "ended", "retrieved", "retrieved"]


async def test_a_result_that_is_pushed_is_retrieved(lines: Lines) -> None:
    async with make().open() as caller:
        task_id = await caller.start("ask", {"text": PAYLOAD})
        async with caller.listening(task_id) as pushed:
            async for task in pushed:
                if task["status"] == "input_required":
                    await caller.update(task_id, YES)
        assert lines.events(task_id) == ["created", "ended", "retrieved"]


@pytest.mark.parametrize("knows_tasks", [True, False])
async def test_a_result_that_is_answered_at_once_is_retrieved(lines: Lines, knows_tasks: bool) -> None:
    server = make()
    async with server.open(**({} if knows_tasks else {"capabilities": {}})) as caller:
        assert (await caller.call("say_at_once", {"text": PAYLOAD}))["resultType"] == "complete"
        (task,) = (await server.tasks.engine.list_tasks()).tasks
        assert lines.events(task.id) == ["created", "ended", "retrieved"]


@pytest.mark.parametrize("knows_tasks", [True, False])
async def test_a_call_whose_task_fails_is_not_refused(lines: Lines, knows_tasks: bool) -> None:
    server = make()
    async with server.open(**({} if knows_tasks else {"capabilities": {}})) as caller:
        with pytest.raises(Refused, match=PAYLOAD):
            await caller.call("fail", {"text": PAYLOAD})
        (task,) = (await server.tasks.engine.list_tasks()).tasks
        assert lines.of(task.id) == [
            {"event": "created", "tool": "fail"},
            {"event": "ended", "tool": "fail", "how": "failed"},
            {"event": "retrieved", "tool": "fail"},
        ]
        assert lines.refusals() == []


async def test_the_line_for_the_end_names_the_final_phase(lines: Lines) -> None:
    server = make()
    async with server.open() as caller:
        assert (await caller.call("refuse", {"text": PAYLOAD}))["isError"]
        (told,) = (await server.tasks.engine.list_tasks()).tasks
        crashed = await caller.start("crash", {"text": PAYLOAD})
        late = await caller.start("ask_in_time", {"text": PAYLOAD})
        for task_id in (crashed, late):
            assert (await caller.until(task_id))["status"] == "failed"
        assert lines.of(told.id)[1] == {"event": "ended", "tool": "refuse", "how": "completed", "is_error": True}
        assert lines.of(crashed)[1] == {"event": "ended", "tool": "crash", "how": "failed"}
        assert lines.of(late)[1] == {"event": "ended", "tool": "ask_in_time", "how": "failed"}


async def test_a_cancel_and_the_end_of_its_task_each_have_a_line(lines: Lines) -> None:
    async with make().open() as caller:
        task_id = await caller.start("ask", {"text": PAYLOAD})
        await caller.cancel(task_id)
        expected = [
            {"event": "created", "tool": "ask"},
            {"event": "ended", "tool": "ask", "how": "cancelled"},
            {"event": "cancelled", "tool": "ask"},
        ]
        assert lines.of(task_id) == expected
        # One that comes too late is acknowledged, and ended nothing.
        await caller.cancel(task_id)
        assert lines.of(task_id) == expected


@pytest.mark.parametrize("store", ["memory:", "sqlite"])
async def test_children_that_are_cancelled_with_their_parent_each_have_a_line(
    lines: Lines, tmp_path: Path, store: str
) -> None:
    server = make("memory:" if store == "memory:" else tmp_path / "tasks.db")
    async with server.open() as caller:
        task_id = await caller.start("parent", {"generations": 2})
        engine = server.tasks.engine
        # Each of them parks once it has started the next, and the youngest when it has asked.
        family = list((await engine.list_tasks()).tasks)
        while len(family) < 3:
            await engine.wait(family[0].id, until=lambda task: task.phase is Phase.PARKED)
            family = list((await engine.list_tasks()).tasks)
        await caller.until(family[0].id, "input_required")
        await caller.cancel(task_id)
        youngest, middle, eldest = family
        assert eldest.id == task_id
        assert lines.of(middle.id) == [
            {"event": "created", "tool": "parent", "parent": eldest.id},
            {"event": "ended", "tool": "parent", "how": "cancelled"},
        ]
        assert lines.of(youngest.id)[:2] == [
            {"event": "created", "tool": "parent", "parent": middle.id},
            {"event": "ended", "tool": "parent", "how": "cancelled"},
        ]
        assert lines.events(eldest.id) == ["created", "ended", "cancelled"]


async def test_a_cancelled_child_that_was_updated_after_its_parent_has_a_line(lines: Lines) -> None:
    clock, store = FakeClock(), MemoryStore()
    await store.open()
    harness = StoreHarness(store, clock)
    parent = await harness.create()
    child = await harness.create(parent_id=parent.id, tool=Tool("child"))
    await harness.create(parent_id=child.id)
    sibling = await harness.create(parent_id=parent.id)
    audit = AuditLog(store)
    cancel = Cancel("caller", None)
    await apply(store, sibling.id, EVERYTHING, cancel, now=clock.now(), on_commit=audit.on_commit)
    clock.advance(10)
    await harness.claim(tools=frozenset({Tool("child")}))
    # As if the clock of the worker that claimed it were ahead.
    clock.advance(-5)
    await apply(store, parent.id, EVERYTHING, cancel, now=clock.now(), on_commit=audit.on_commit)
    ended = [record.audit["task"] for record in lines.records if record.audit["event"] == "ended"]
    assert sorted(ended) == ["task-0001", "task-0002", "task-0003", "task-0004"]
    await store.close()


async def test_a_repeated_call_is_logged_as_joined(lines: Lines) -> None:
    async with make().open() as caller:
        again = {"meta": {"raincheck/idempotency-key": PAYLOAD}}
        task_id = await caller.start("ask", {"text": PAYLOAD}, **again)
        assert await caller.start("ask", {"text": PAYLOAD}, **again) == task_id
        assert lines.events(task_id) == ["created", "joined"]
        # The error quotes the key to its caller, and to no other reader.
        with pytest.raises(Refused, match=PAYLOAD):
            await caller.start("say", {"text": PAYLOAD}, **again)
        (refused,) = lines.refusals()
        assert refused == {"event": "refused", "owner": LOCAL, "tool": "say", "method": "tools/call", "code": -32602}


async def test_of_two_servers_on_one_file_only_the_one_that_wrote_the_end_logs_it(lines: Lines, tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with make(path, works=False).open() as caller, make(path).open() as other:
        task_id = await caller.start("ask", {"text": PAYLOAD})
        await other.until(task_id, "input_required")
        await other.update(task_id, YES)
        await caller.until(task_id)
        # The other server may have seen the end before the writer has logged it.
        events = lines.events(task_id)
        assert [events.count(one) for one in ("created", "ended")] == [1, 1]


async def test_every_refusal_has_a_line_that_names_the_caller(lines: Lines) -> None:
    async with make().open_http() as anybody:
        anonymous = '["anonymous"]'
        task_id = await anybody.start("ask", {"text": PAYLOAD})
        stranger = Caller(anybody.transport, headers={"authorization": PAYLOAD})
        fallback_caller = Caller(anybody.transport, capabilities={})
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            params = {"inputResponses": YES} if method == "tasks/update" else {}
            for one, asked, code in (
                (stranger, task_id, -32602),
                (anybody, "x", -32602),
                (fallback_caller, task_id, -32021),
            ):
                with pytest.raises(Refused):
                    await one.request(method, {"taskId": asked, **params})
                refused = lines.refusals()[-1]
                owner = refused.pop("owner")
                # Most of the id of an anonymous task is left out, for every caller.
                assert refused == {"event": "refused", "task": f"{asked[:20]}...", "method": method, "code": code}
                assert owner.startswith('["header"') if one is stranger else owner == anonymous
        with pytest.raises(Refused):
            async with fallback_caller.listening(task_id):
                pass
        assert lines.refusals()[-1] == {
            "event": "refused",
            "owner": anonymous,
            "method": "subscriptions/listen",
            "code": -32021,
        }
        assert len(lines.refusals()) == 10


async def test_the_same_header_is_another_owner_in_another_store(lines: Lines) -> None:
    # So readers of the log can't guess the header.
    for _ in range(2):
        async with make().open_http(headers={"authorization": "Bearer guessable"}) as caller:
            await caller.start("ask", {"text": PAYLOAD})
    first, second = (record.audit["owner"] for record in lines.records if record.audit["event"] == "created")
    assert first != second


async def test_no_line_contains_the_whole_id_of_an_anonymous_task(lines: Lines) -> None:
    async with make().open_http() as anybody:
        task_id = await anybody.start("ask", {"text": PAYLOAD})
        await anybody.until(task_id, "input_required")
        await anybody.update(task_id, YES)
        await anybody.result(task_id)
        events = [record.audit["event"] for record in lines.records if record.audit["task"] == f"{task_id[:20]}..."]
        assert set(events) == {"created", "ended", "retrieved"}
        assert [record for record in lines.records if task_id in f"{record.getMessage()} {record.__dict__}"] == []


async def test_a_refusal_for_a_quota_has_a_line(lines: Lines) -> None:
    async with make(settings=replace(QUICK, quota=Quota(live=1))).open() as caller:
        await caller.start("ask", {"text": PAYLOAD})
        with pytest.raises(Refused):
            await caller.start("say", {"text": PAYLOAD})
        (refused,) = lines.refusals()
        assert refused == {"event": "refused", "owner": LOCAL, "tool": "say", "method": "tools/call", "code": -32010}


@pytest.mark.parametrize("odd", ["x\nended owner=me", "x\r\ny", "x\u2028y", "x\x1b[2Jy", "x" * 3_000, "ü", "x\0y"])
async def test_a_task_id_from_a_caller_can_not_inject_a_log_line(lines: Lines, odd: str) -> None:
    async with make().open() as caller:
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            with pytest.raises(Refused):
                # A name is that of a tool only where a tool is called.
                await caller.request(method, {"taskId": odd, "inputResponses": {}, "name": f"{PAYLOAD} {odd}"})
        assert len(lines.refusals()) == 3
        for record in lines.records:
            assert record.getMessage().isprintable()
            assert record.getMessage().isascii()
            assert len(record.getMessage()) < 2_500
            assert "tool" not in record.audit


class Forgetful:
    """A store that can't be read just when the audit wants to know of children."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def list_tasks(self, query: TaskQuery, **options: Any) -> Page:
        if query.parent_id is not None:
            raise StoreUnavailable("memory", "away")
        return await self._store.list_tasks(query, **options)


async def test_a_committed_change_stands_when_its_audit_lines_can_not_be_read(lines: Lines) -> None:
    store, toolbox = MemoryStore(), Toolbox()

    @toolbox.tool
    async def wait(task: TaskContext) -> None:
        await task.sleep(1_000)

    await store.open()
    audit = AuditLog(Forgetful(store))  # pyright: ignore[reportArgumentType] - the rest is the store's
    async with Engine(store, toolbox, observer=audit) as engine:
        task = await engine.submit("wait")
        assert (await engine.cancel(task.id)).phase is Phase.CANCELLED
        assert lines.events(task.id) == ["created", "ended"]
    await store.close()
