"""Instances over the wire, in both protocol versions and without tasks: states, notifications and cancels."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import groupby
from typing import Any

import pytest

from raincheck import Owner
from raincheck.errors import TaskNotFound
from raincheck.workflows import Machine, State, Transition
from tests.support.server.caller_v2025 import V2025Caller, v2025_caller
from tests.support.server.example import ExampleServer
from tests.support.server.tools import ON_BOTH_TRANSPORTS, text_of
from tests.support.workflows.example_machine import review

pytestmark = pytest.mark.anyio

STATE = "raincheck/state"
STATUS = "notifications/tasks/status"
ENDLESS = Machine("endless", [State("on", [Transition("stop", "off")]), State("off", kind="success")])


def make() -> ExampleServer:
    server = ExampleServer(fallback_wait=0.1)
    for machine in (review(), ENDLESS):
        server.tasks.add(machine.tool(), input_schema=machine.input_schema, description="A workflow.")
    return server


async def fire(server: ExampleServer, task_id: str, action: str, **more: Any) -> None:
    instances = server.tasks.engine.instances
    try:
        await instances.transition(task_id, action, actor="bob", **more)
    except TaskNotFound:
        # Over HTTP, the callers are anonymous.
        await instances.transition(task_id, action, actor="bob", owner=Owner.anonymous(), **more)


async def submit(server: ExampleServer, task_id: str) -> None:
    await fire(server, task_id, "submit", data={"text": "hello"})


@ON_BOTH_TRANSPORTS
async def test_a_poll_of_2026_always_names_the_state(way: str) -> None:
    server = make()
    async with server.open_by(way) as caller:
        created = await caller.call("review")
        task_id = created["taskId"]
        assert (created["_meta"][STATE], created["statusMessage"]) == ("draft", "draft")
        await submit(server, task_id)
        polled = await caller.get(task_id)
        assert (polled["status"], polled["_meta"][STATE], polled["statusMessage"]) == (
            "working",
            "reviewed",
            "reviewed",
        )
        await fire(server, task_id, "approve")
        done = await caller.until(task_id, "completed")
        assert done["_meta"][STATE] == "published"
        assert done["result"]["structuredContent"] == {"text": "hello"}


async def test_a_poll_of_2025_always_names_the_state() -> None:
    server = make()
    async with v2025_caller(server) as caller:
        created = await caller.call("review", task={})
        assert created["_meta"][STATE] == "draft"
        task_id = created["task"]["taskId"]
        await submit(server, task_id)
        polled = await caller.get(task_id)
        assert (polled["status"], polled["_meta"][STATE], polled["statusMessage"]) == (
            "working",
            "reviewed",
            "reviewed",
        )
        await fire(server, task_id, "approve")
        assert (await caller.result(task_id))["structuredContent"] == {"text": "hello"}
        assert (await caller.get(task_id))["_meta"][STATE] == "published"


async def test_each_transition_is_pushed_to_callers_of_2026() -> None:
    server = make()
    seen: list[str] = []
    async with server.open() as caller:
        task_id = await caller.start("review")
        async with caller.listening(task_id) as pushed:
            async for task in pushed:
                state = task["statusMessage"] if task["status"] == "working" else "published"
                if seen and seen[-1] == state:
                    continue
                seen.append(state)
                match len(seen):
                    case 1:
                        await submit(server, task_id)
                    case 2:
                        await fire(server, task_id, "reject", reason="too short")
                    case 3:
                        await submit(server, task_id)
                    case 4:
                        await fire(server, task_id, "approve")
                    case _:
                        pass
    assert seen == ["draft", "reviewed", "draft: too short", "reviewed", "published"]


def states_of(caller: V2025Caller, task_id: str) -> list[str]:
    return [message["_meta"][STATE] for message in caller.pushed(STATUS, task_id)]


async def test_each_transition_is_pushed_to_callers_of_2025() -> None:
    server = make()
    async with v2025_caller(server) as caller:
        task_id = await caller.start("review")
        for action, state in (("submit", "reviewed"), ("lock", "locked"), ("unlock", "reviewed")):
            await fire(server, task_id, action, data={"text": "x"})
            await caller.seen(lambda _, state=state: states_of(caller, task_id)[-1:] == [state])
        await fire(server, task_id, "approve")
        await caller.result(task_id)
        states = [one for one, _ in groupby(states_of(caller, task_id))]
        assert states == [
            "reviewed",
            "locked",
            "reviewed",
            "published",
        ]


async def test_a_failed_instance_names_its_state_in_both_generations() -> None:
    server = make()
    async with server.open() as later:
        task_id = await later.start("review")
        await submit(server, task_id)
        await fire(server, task_id, "refuse")
        failed = await later.until(task_id, "failed")
        assert failed["_meta"][STATE] == "refused"
        assert failed["error"]["code"] == -32000
        assert failed["error"]["data"]["state"] == "refused"
    server = make()
    async with v2025_caller(server) as earlier:
        task_id = await earlier.start("review")
        await submit(server, task_id)
        await fire(server, task_id, "refuse")
        await earlier.until(task_id, "failed")
        assert (await earlier.get(task_id))["_meta"][STATE] == "refused"


@asynccontextmanager
async def refused_with(
    reason: str, server: ExampleServer, start: Callable[[str], Awaitable[str]]
) -> AsyncGenerator[str]:
    """Check that cancelling an instance is refused for this reason, and that the instance continues."""
    task_id = await start("endless" if reason == "not-cancellable" else "review")
    if reason != "not-cancellable":
        await submit(server, task_id)
        await fire(server, task_id, "approve" if reason == "already-completed" else "lock")
        if reason == "already-completed":
            await server.tasks.engine.wait(task_id)
    before = (await server.tasks.engine.task(task_id)).state
    yield task_id
    assert (await server.tasks.engine.task(task_id)).state == before


REASONS = pytest.mark.parametrize("reason", ["already-completed", "not-cancellable", "no-cancel-transition"])


@REASONS
async def test_a_refused_cancel_of_2026_is_acknowledged_with_the_reason(reason: str) -> None:
    server = make()
    async with server.open() as caller, refused_with(reason, server, caller.start) as task_id:
        answer = await caller.cancel(task_id)
        assert answer["_meta"]["raincheck/cancel-refused"]["reason"] == reason


@REASONS
async def test_a_refused_cancel_of_2025_is_an_error_with_the_reason(reason: str) -> None:
    server = make()
    async with v2025_caller(server) as caller, refused_with(reason, server, caller.start) as task_id:
        with pytest.raises(Exception, match=reason) as refused:
            await caller.cancel(task_id)
        assert refused.value.code == -32602  # type: ignore[attr-defined] # the caller's own error
        assert refused.value.data["reason"] == reason  # type: ignore[attr-defined]


async def test_an_allowed_cancel_ends_the_instance_in_both_generations() -> None:
    server = make()
    async with server.open() as later:
        task_id = await later.start("review")
        await later.cancel(task_id)
        ended = await later.until(task_id, "cancelled")
        assert ended["_meta"][STATE] == "withdrawn"
    server = make()
    async with v2025_caller(server) as earlier:
        task_id = await earlier.start("review")
        answer = await earlier.cancel(task_id)
        assert (answer["status"], answer["_meta"][STATE]) == ("cancelled", "withdrawn")


async def test_a_host_without_tasks_is_shown_why_an_instance_is_not_cancelled() -> None:
    server = make()
    async with server.open(capabilities={}) as caller:
        answer = await caller.call("endless")
        task_id = answer["_meta"]["raincheck/task"]
        answer = await caller.call("task_cancel", {"task_id": task_id})
        assert "not-cancellable" in text_of(answer)
        await fire(server, task_id, "stop")
        async with asyncio.timeout(10):
            await server.tasks.engine.wait(task_id)
