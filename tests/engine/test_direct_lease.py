"""What a task that is begun directly has of its own: a whole lease, and nothing of whoever asked for it."""

import asyncio
import gc
import weakref
from contextvars import ContextVar, copy_context
from datetime import timedelta

import pytest
from watched import Watched, a_clock
from workbench import Bench

from raincheck.engine import Settings

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


class Request:
    """What somebody is served with, who asks for a task."""


served: ContextVar[Request | None] = ContextVar("served", default=None)


def add_gated(bench: Bench) -> asyncio.Event:
    gate = asyncio.Event()

    @bench.toolbox.tool
    async def gated() -> None:
        await gate.wait()

    return gate


async def test_one_whose_commit_had_to_wait_has_a_whole_lease(bench: Bench) -> None:
    watched, clock = Watched(bench.store), a_clock()
    bench.store = watched.as_store
    gate = add_gated(bench)
    async with bench.working(Settings(lease=15.0), clock=clock) as engine:
        others_have_written = watched.hold_up("create")
        submitting = asyncio.ensure_future(engine.submit("gated"))
        await watched.asked("create")
        clock.advance(12)
        others_have_written.set()
        task = await submitting
        while True:
            seen = await engine.task(task.id)
            assert seen.attempt is not None
            if seen.attempt.lease.expires_at == clock.now() + timedelta(seconds=15):
                break
            await asyncio.sleep(0)
        gate.set()


async def test_an_attempt_does_not_keep_the_request_that_asked_for_it(bench: Bench) -> None:
    gate = add_gated(bench)

    async def ask() -> "weakref.ref[Request]":
        request = Request()
        served.set(request)
        await engine.submit("gated")
        return weakref.ref(request)

    async with bench.working() as engine:
        seen: list[weakref.ref[Request]] = []
        asking = asyncio.get_running_loop().create_task(ask(), context=copy_context())
        asking.add_done_callback(lambda done: seen.append(done.result()))
        del asking
        while not seen or seen[0]() is not None:
            # Until the time is up, if it is kept.
            await asyncio.sleep(0)
            gc.collect()
        gate.set()
