"""What others say to a task that runs elsewhere: that it is cancelled, or the answer to its question."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

from raincheck.core.lifecycle import Phase
from raincheck.engine import Engine
from raincheck.testing.dispatching.base import DispatchBase
from raincheck.testing.dispatching.program import settings_of
from raincheck.testing.dispatching.site import Site

PLACES = 8
NEVER = 3_600.0
STOPPING = 10.0
"""Seconds within which a body must have stopped. How long it takes is told, not judged."""


class SteeringContract(DispatchBase):
    async def test_a_cancel_in_one_process_stops_the_body_in_another(
        self, site: Site, record_property: Callable[[str, object], None]
    ) -> None:
        worker = await site.start_worker()
        task = await site.engine.submit("wait_for_ever")
        await worker.hear("began", task.id)
        began = time.monotonic()
        async with asyncio.timeout(STOPPING):
            cancelled = await site.engine.cancel(task.id)
            await worker.hear("cancelled", task.id)
        record_property("milliseconds until the body stopped", round(1_000 * (time.monotonic() - began)))
        assert cancelled.phase is Phase.CANCELLED
        assert await site.end_of(task) == (Phase.CANCELLED, None)
        # Its place is free again.
        assert await site.end_of(await site.engine.submit("plain")) == (Phase.COMPLETED, 1)

    async def test_more_tasks_than_there_are_places_wait_for_answers_and_hold_up_nobody(self, site: Site) -> None:
        worker = await site.start_worker(concurrency=PLACES)
        asking = [await site.engine.submit("ask", {"number": number}) for number in range(PLACES + 4)]
        for task in asking:
            await site.reach(task, Phase.PARKED)
        other = await site.engine.submit("plain")
        assert await site.end_of(other) == (Phase.COMPLETED, 1)
        for number, task in enumerate(asking):
            await site.engine.answer(task.id, {"elicit-0": {"action": "accept", "content": {"told": number}}})
        for number, task in enumerate(asking):
            assert await site.end_of(task) == (Phase.COMPLETED, [number, {"told": number}])
        assert worker.process.returncode is None

    async def test_more_tasks_than_there_are_places_are_parked_while_others_wait_for_a_place(self, site: Site) -> None:
        asking = [await site.engine.submit("ask", {"number": number}) for number in range(PLACES + 4)]
        others = [await site.engine.submit("plain") for _ in range(PLACES)]
        await site.start_worker(concurrency=PLACES)
        assert await site.ends_of(others) == {Phase.COMPLETED}
        for task in asking:
            await site.reach(task, Phase.PARKED)

    async def test_bodies_that_wait_with_patience_give_way_to_others(self, site: Site) -> None:
        settings = replace(settings_of(concurrency=2), patience=NEVER, look_every=NEVER)
        async with Engine(site.store, site.engine.toolbox, settings=settings):
            asking = [await site.engine.submit("ask", {"number": number}) for number in range(3)]
            other = await site.engine.submit("plain")
            assert await site.end_of(other) == (Phase.COMPLETED, 1)
            for task in asking:
                await site.engine.answer(task.id, {"elicit-0": {"action": "accept", "content": {}}})
            assert await site.ends_of(asking) == {Phase.COMPLETED}
