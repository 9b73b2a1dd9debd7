"""Contract for durable data that outlives a handle, and for several handles on the same data."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from raincheck.core import records
from raincheck.core.commands import Cancel, Complete, Fail, Note, Park, Pause, Resume, TakeTransition
from raincheck.core.histogram import DurationHistogram
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner, Scope
from raincheck.core.policies import OnInterrupt, Quota, Retention, RetryPolicy
from raincheck.core.records import Artifact, InputKind, InputRequest, Progress, Step, Task, TaskId, Tool
from raincheck.core.values import encode
from raincheck.errors import LeaseLost, QuotaExceeded, StoreUnavailable
from raincheck.stores.base import Store
from raincheck.stores.change_feed import ANY_TASK
from raincheck.stores.memory import MemoryStore
from raincheck.stores.requests import HeldAttempt, TaskQuery
from raincheck.testing.clock import FakeClock
from raincheck.testing.harness import (
    ALICE,
    BOB,
    EVERYTHING,
    KEYED,
    LEASE,
    NAMESPACE,
    OTHER_REQUEST,
    TOOL,
    StoreHarness,
    outcome_of,
    wait_for_hint,
)
from raincheck.testing.invariants import check_invariants
from raincheck.testing.store_contract.base import Handles, StoreContractBase, use_in_thread

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


QUICK = DurationHistogram().with_duration(0.1)
OTHER = Tool("release", "2.1")


async def fill_store(harness: StoreHarness) -> None:
    """Create tasks so that each field of each record has different values."""
    store, clock = harness.store, harness.clock
    await store.save_definitions(NAMESPACE, {TOOL: b"old", OTHER: b"new"})
    for tool, seconds in ((TOOL, 0.1), (TOOL, 60), (OTHER, 1)):
        await store.merge_durations(NAMESPACE, {tool.name: DurationHistogram().with_duration(seconds)})
    await _create_instance(harness)
    await _create_family(harness)
    failed = await harness.create_running()
    await harness.apply(failed, Fail(1, encode({"message": "broke"}), "broke", detail=encode("line 1")))
    released = await harness.create(idempotency_key="released", request_digest="digest")
    await store.release_key(released.id, "released")
    pruned = await harness.apply(await harness.create(), Cancel("alice"))
    await store.prune(now=clock.now(), limit=1, only=[pruned.id])
    # The queue: after two of Alice's turns, a third one, and the first of another owner.
    for _ in range(3):
        await harness.create_later(owner=ALICE)
    await harness.claim(limit=2, holder="worker-2")
    await harness.create_later(owner=Owner.client("host"), **KEYED)
    await harness.create_later(namespace="elsewhere", state="draft")


async def _create_instance(harness: StoreHarness) -> None:
    """Create an instance that was answered, moved to another state, failed, and has one of everything since then."""
    now = harness.clock.advance(1.000_001)
    task = await harness.create_running(
        tool=OTHER,
        parent_id=TaskId("parent"),
        arguments=encode([1.5, None]),
        caller=encode({"subject": "alice"}),
        priority=-7,
        deadline_at=now + timedelta(days=60, microseconds=1),
        retry=RetryPolicy(7, timedelta(milliseconds=3), 1.5, timedelta(days=40), 0.25, OnInterrupt.FAIL),
        retention=Retention(keep=timedelta(days=90, microseconds=1), ttl=timedelta(days=60, microseconds=3)),
        actor="alice",
        state="draft",
        subject="paper 7",
        **KEYED,
    )
    await harness.apply(task, Note(1, steps=(harness.step("draft"),), input_requests=(harness.input_request("old"),)))
    await harness.answer(task, {"old": encode(1)})
    harness.clock.advance(1.000_001)
    await harness.apply(task, TakeTransition("submit", "draft", 0, "review", "ann", "it is ready", encode({"n": 1})))
    await harness.apply(task, Fail(1, encode({"message": "broke"}), "broke"))
    harness.clock.advance(60.000_001)
    await harness.claim(tools=frozenset({OTHER}), holder="worker-3")
    await harness.apply(task, Note(2, steps=(harness.step("load"),), input_requests=(harness.input_request("sure"),)))
    now = harness.clock.advance(1.000_001)
    note = Note(
        2,
        Progress(1.5, 4.0),
        "crunching",
        steps=(Step("check", 1, "other", encode([1]), 2, now),),
        input_requests=(InputRequest("model", InputKind.SAMPLING, encode("Sum up."), now, 2),),
        artifacts=(Artifact("report", encode("draft"), now), Artifact("chart", encode(0), now)),
        variables=encode({"n": 2}),
    )
    await harness.apply(task, note)
    await harness.answer(task, {"model": encode("In short.")})
    now = harness.clock.advance(1.000_001)
    await harness.apply(task, Note(2, artifacts=(Artifact("report", encode("better"), now),)))
    await harness.apply(task, Pause("operator", "maintenance"))
    await harness.store.extend_leases([HeldAttempt(task.id, 2)], until=now + 9 * LEASE)


async def _create_family(harness: StoreHarness) -> None:
    """Create a parent that waits for input, its completed child, a task that it spawned, and a cancelled family."""
    parent = await harness.create_running(owner=Owner.local())
    child = harness.creation(parent_id=parent.id, owner=parent.owner)
    # Nothing else happens to it, so that it is written only if the change that spawned it writes it.
    spawned = harness.creation(owner=parent.owner, due_at=harness.clock.now() + timedelta(days=1))
    await harness.apply(parent, Note(1, Progress(1), spawned=(child, spawned)))
    harness.clock.advance(1.000_001)
    await harness.claim()
    await harness.apply(child.task, Complete(1, encode("done"), is_error=True, status_message="3 rows"))
    await harness.apply(parent, Note(1, input_requests=(harness.input_request("publish"),)))
    await harness.apply(parent, Park(1, seen_signals=1, until=harness.clock.now() + timedelta(seconds=60)))
    cancelled = await harness.create()
    await harness.create(parent_id=cancelled.id)
    await harness.apply(cancelled, Cancel("alice", "changed my mind"))


async def read_everything(harness: StoreHarness) -> dict[str, object]:
    """Return what a store has: everything by name, and the records of each task by its id."""
    store, now = harness.store, harness.clock.now()
    tasks = (await harness.page(TaskQuery(EVERYTHING))).tasks
    contents: dict[str, object] = {
        "tasks": tasks,
        "live": await store.count_live(EVERYTHING),
        "states": await store.count_states(Scope.for_namespace(NAMESPACE), now=now),
        "overdue": await store.list_overdue(now=now + 10 * LEASE, limit=100),
        "definitions": await store.save_definitions(NAMESPACE, {}),
        "durations": await store.merge_durations(NAMESPACE, {}),
    }
    for task in tasks:
        journal = await harness.journal(task)
        artifacts = [await store.artifact(task.id, name, EVERYTHING, now=now) for name in journal.artifacts]
        contents[task.id] = journal, await harness.view(task), await harness.history(task), artifacts
    return contents


async def resume_work(harness: StoreHarness) -> list[object]:
    """Use what no read shows, and return the outcomes: digests of requests, quotas, turns in the queue."""
    return [
        await outcome_of(harness.create(tool=OTHER, **KEYED)),
        str(await outcome_of(harness.create(**OTHER_REQUEST))),
        str(await outcome_of(harness.create(quota=Quota(live=7)))),
        str(await outcome_of(harness.create(quota=Quota(created=8, window=timedelta(hours=1))))),
        await outcome_of(harness.create(idempotency_key="released", request_digest="another", owner=BOB)),
        await harness.claim(limit=100),
        await harness.sweep(),
    ]


def require_variety(contents: object) -> None:
    """Require that the contents have all records, and two different values in each field of each."""
    found: defaultdict[type, list[Any]] = defaultdict(list)
    for record in _find_records(contents):
        found[type(record)].append(record)
    defined = (cls for cls in vars(records).values() if isinstance(cls, type) and is_dataclass(cls))
    missing = [cls.__name__ for cls in defined if cls not in found]
    for cls, instances in found.items():
        for name in (field.name for field in fields(cls)):
            first, *others = (getattr(instance, name) for instance in instances)
            if all(value == first for value in others):
                missing.append(f"{cls.__name__}.{name}")
    assert not missing, f"`fill_store` stores no different values of {', '.join(missing)}"


def _find_records(value: object) -> Iterator["DataclassInstance"]:
    parts: Iterable[object] = ()
    if is_dataclass(value) and not isinstance(value, type):
        yield value
        parts = [getattr(value, field.name) for field in fields(value)]
    elif isinstance(value, Mapping):
        parts = cast("Mapping[object, object]", value).values()
    elif isinstance(value, tuple | list):
        parts = cast("Sequence[object]", value)
    for part in parts:
        yield from _find_records(part)


USES: dict[str, Callable[[StoreHarness], Awaitable[object]]] = {
    "create": lambda harness: harness.create(),
    "claim": lambda harness: harness.claim(),
    "count": lambda harness: harness.store.count_live(EVERYTHING),
    "secret": lambda harness: harness.store.get_or_create_secret("key"),
    "read durations": lambda harness: harness.store.merge_durations(NAMESPACE, {}),
    "merge durations": lambda harness: harness.store.merge_durations(NAMESPACE, {"build": QUICK}),
    "release a key": lambda harness: harness.store.release_key(TaskId("task"), "key"),
}


class DurabilityContract(StoreContractBase):
    @pytest.mark.parametrize("name", USES)
    async def test_a_store_that_is_not_open_raises_an_error(self, tmp_path: Path, clock: FakeClock, name: str) -> None:
        harness = StoreHarness(self.make_store(tmp_path), clock)
        with pytest.raises(StoreUnavailable, match="open it"):
            await USES[name](harness)
        await harness.store.open()
        await harness.store.close()
        await harness.store.close()
        with pytest.raises(StoreUnavailable, match="open it"):
            await USES[name](harness)

    async def test_every_field_of_every_record_is_stored_after_reopening(
        self, tmp_path: Path, clock: FakeClock
    ) -> None:
        self.require(durable=True)
        model = StoreHarness(MemoryStore(), FakeClock())
        await model.store.open()
        await fill_store(model)
        expected = await read_everything(model)
        require_variety(expected)
        async with self.open_store(tmp_path) as store:
            harness = StoreHarness(store, clock)
            await fill_store(harness)
            assert await read_everything(harness) == expected
        async with self.open_store(tmp_path) as store:
            harness.store = store
            assert await read_everything(harness) == expected
            assert await resume_work(harness) == await resume_work(model)
            await check_invariants(store)

    async def test_another_handle_takes_over_the_tasks_of_a_dead_one(self, handles: Handles) -> None:
        dead, alive = handles
        held = await dead.create_running()
        dead.clock.advance(LEASE.total_seconds())
        await alive.sweep()
        (again,) = await alive.claim(holder="worker-2")
        with pytest.raises(LeaseLost):
            await dead.apply(held, Complete(1, encode("stale")))
        await alive.apply(again, Complete(2, encode("done")))

    async def test_handles_that_race_for_work_never_share_a_task(self, handles: Handles) -> None:
        for _ in range(30):
            await handles[0].create()

        async def work(harness: StoreHarness) -> list[str]:
            mine: list[str] = []
            while claimed := await harness.claim(limit=2):
                mine += [task.id for task in claimed]
            return mine

        first, second = await asyncio.gather(*map(work, handles))
        assert len(first) + len(second) == len({*first, *second}) == 30

    async def test_handles_that_race_to_end_a_task_agree_on_the_winner(self, handles: Handles) -> None:
        one, two = handles
        for number in range(10):
            task = await one.create_running(id=TaskId(f"task {number}"))
            ends = one.apply(task, Complete(1, encode("done"))), two.apply(task, Cancel("alice"))
            outcomes = await asyncio.gather(*ends, return_exceptions=True)
            winners = [outcome for outcome in outcomes if isinstance(outcome, Task)]
            assert len(winners) == 1
            assert await two.load(task) == await one.load(task) == winners[0]

    async def test_racing_handles_do_not_exceed_the_live_quota(self, handles: Handles) -> None:
        creates = (
            harness.create(id=TaskId(f"task {number}"), quota=Quota(live=5))
            for number, harness in enumerate(handles * 10)
        )
        outcomes = await asyncio.gather(*creates, return_exceptions=True)
        assert sum(isinstance(outcome, QuotaExceeded) for outcome in outcomes) == 15
        assert await handles[0].store.count_live(EVERYTHING) == {Phase.QUEUED: 5}

    async def test_a_new_handle_extends_leases_from_another_thread_and_event_loop(self, harness: StoreHarness) -> None:
        self.require(shared=True)
        mine, lost = await harness.create_running(), await harness.create_running()
        await harness.apply(lost, Cancel("alice"))
        until = harness.clock.now() + 9 * LEASE
        held = [HeldAttempt(task.id, task.attempt_number) for task in (mine, lost)]

        async def extend(handle: Store) -> frozenset[TaskId]:
            return await handle.extend_leases(held, until=until)

        assert await use_in_thread(harness.store, extend) == {lost.id}
        extended = await harness.load(mine)
        assert extended.attempt is not None
        assert extended.attempt.lease.expires_at == until

    async def test_handles_that_write_in_separate_threads_lose_nothing(self, store: Store, clock: FakeClock) -> None:
        self.require(shared=True)

        async def create(name: str, handle: Store) -> None:
            for number in range(20):
                await StoreHarness(handle, clock).create(id=TaskId(f"{name} {number}"))

        await asyncio.gather(*(use_in_thread(store, partial(create, name)) for name in ("one", "two")))
        assert await store.count_live(EVERYTHING) == {Phase.QUEUED: 40}

    async def test_only_a_shared_store_makes_new_handles(self, store: Store) -> None:
        if store.capabilities.shared:
            assert store.new_handle() is not store
        else:
            with pytest.raises(StoreUnavailable):
                store.new_handle()

    async def test_closing_one_handle_ends_only_its_own_feeds(self, tmp_path: Path, harness: StoreHarness) -> None:
        self.require(shared=True)
        with harness.store.listen() as feed:
            async with self.open_store(tmp_path):
                pass
            task = await harness.create()
            await wait_for_hint(feed, task.id)

    async def test_the_change_feed_reports_changes_of_another_handle(self, handles: Handles) -> None:
        one, two = handles
        task = await one.create()
        with two.store.listen() as feed:
            # A hint without task ids may be left from before the first change, so one change would prove nothing.
            for command in (Pause("alice"), Resume("alice"), Cancel("alice")):
                changed = await one.apply(task, command)
                async with asyncio.timeout(10):
                    async for hint in feed:
                        if hint == ANY_TASK or task.id in hint:
                            break
                assert await two.load(task) == changed
