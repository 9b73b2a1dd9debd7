"""A store with some tasks, created again for each crash, and scenarios for all of its writing methods."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from raincheck.core.change import Change
from raincheck.core.commands import Answer, Cancel, Command, Complete, Note, Park, TakeTransition
from raincheck.core.decide import decide
from raincheck.core.histogram import DurationHistogram
from raincheck.core.policies import Quota
from raincheck.core.records import Artifact, Task, TaskId, Tool
from raincheck.core.values import encode
from raincheck.stores.base import Store
from raincheck.stores.requests import ClaimRequest, HeldAttempt, TaskQuery
from raincheck.testing import CrashPlan, FakeClock, StoreHarness, check_invariants
from raincheck.testing.harness import EVERYTHING, LEASE, NAMESPACE
from raincheck.testing.invariants import EARLIEST

Snapshot: TypeAlias = dict[TaskId, object]

OTHER_TABLES = {
    "lines": "SELECT namespace, priority, served FROM lines",
    "secrets": "SELECT name, length(bytes) FROM secrets",
    "durations": "SELECT namespace, tool, counts FROM durations",
    "definitions": "SELECT namespace, tool, tool_version, body FROM definitions",
}
"""Data that belongs to no task. The served turns would otherwise show only in later claims, and the bytes of a secret
differ in every run."""


class StoreBackend(Protocol):
    """The data of one kind of store, which can be reset."""

    def reset(self) -> None:
        """Use fresh data from now on."""
        ...

    def store(self, plan: CrashPlan | None) -> Store:
        """Return a store on the data, not opened yet. With a plan, it crashes at the planned point."""
        ...

    async def query(self, query: str) -> list[Any]:
        """Return the rows of a query."""
        ...


async def snapshot(store: Store) -> Snapshot:
    """Return everything that can be read, by task."""
    page = await store.list_tasks(TaskQuery(EVERYTHING), now=EARLIEST, limit=100)
    return {
        task.id: (
            await store.view(task.id, EVERYTHING, now=EARLIEST),
            await store.journal(task.id, EVERYTHING, now=EARLIEST),
            await store.history(task.id, EVERYTHING, now=EARLIEST),
            await store.artifact(task.id, "report", EVERYTHING, now=EARLIEST),
        )
        for task in page.tasks
    }


class ScenarioSetup:
    """A store with some tasks, created again for each crash."""

    def __init__(self, backend: StoreBackend) -> None:
        self.backend = backend
        self.clock = FakeClock()
        self.tasks: dict[str, Task] = {}

    async def make_store(self, plan: CrashPlan) -> Store:
        await self.reset()
        store = self.backend.store(plan)
        await store.open()
        return store

    async def reset(self) -> None:
        self.backend.reset()
        self.clock = FakeClock()
        store = self.backend.store(None)
        await store.open()
        harness = StoreHarness(store, self.clock)
        ended = await harness.apply(await harness.create(), Cancel("alice"))
        self.clock.advance(100_000)
        grandparent = await harness.create_running()
        parent = await harness.create_running(parent_id=grandparent.id)
        await harness.apply(grandparent, Park(1, seen_signals=0))
        one = await harness.create_running(idempotency_key="taken", request_digest="digest")
        two = await harness.create_running()
        asking = await harness.create_running()
        asking = await harness.apply(asking, Note(1, input_requests=(harness.input_request("publish"),)))
        instance = await harness.create_running(state="draft")
        queued = [await harness.create() for _ in range(2)]
        self.tasks = {"ended": ended, "one": one, "two": two, "asking": asking, "queued": queued[0], "parent": parent}
        self.tasks["instance"] = instance
        child = await harness.create(parent_id=parent.id)
        await harness.create(parent_id=child.id)
        await store.merge_durations(NAMESPACE, {"known": DurationHistogram().with_duration(1)})
        await store.close()

    async def stored(self) -> Snapshot:
        """Return what is stored, read without a crash plan."""
        store = self.backend.store(None)
        await store.open()
        try:
            await check_invariants(store)
            return await snapshot(store) | await self.other_tables()
        finally:
            await store.close()

    async def other_tables(self) -> Snapshot:
        return {TaskId(name): await self.backend.query(query) for name, query in OTHER_TABLES.items()}

    def change(self, name: str, command: Command) -> Change:
        change = decide(self.tasks[name], command, self.clock.now())
        assert change is not None
        return change


async def creates(setup: ScenarioSetup, store: Store) -> None:
    creation = StoreHarness(store, setup.clock).creation(
        id=TaskId("new"), caller=encode("alice"), idempotency_key="key", request_digest="digest"
    )
    await store.create(creation, quota=Quota(live=100, created=100), now=setup.clock.now())


async def creates_and_starts(setup: ScenarioSetup, store: Store) -> None:
    tool = Tool("other")
    creation = StoreHarness(store, setup.clock).creation(id=TaskId("new"), tool=tool)
    claim = ClaimRequest(NAMESPACE, frozenset({tool}), "creator", LEASE, 1)
    await store.create(creation, quota=Quota(live=100, created=100), now=setup.clock.now(), claim=claim)


async def commits_one_of_everything(setup: ScenarioSetup, store: Store) -> None:
    harness = StoreHarness(store, setup.clock)
    note = Note(
        1,
        status_message="working",
        steps=(harness.step("load"), harness.step("crunch")),
        input_requests=(harness.input_request("sure"),),
        artifacts=(Artifact("report", encode("draft"), setup.clock.now()),),
        variables=encode({"n": 1}),
        spawned=(harness.creation(id=TaskId("child")),),
    )
    await store.commit([setup.change("one", note)])


async def commits_several_tasks(setup: ScenarioSetup, store: Store) -> None:
    question = StoreHarness(store, setup.clock).input_request("publish")
    answer = Answer((question,), {"publish": encode("yes")}, "alice")
    await store.commit(
        [
            setup.change("one", Complete(1, encode("done"))),
            setup.change("two", Cancel("alice")),
            setup.change("asking", answer),
        ]
    )


async def commits_an_end_that_affects_the_whole_family(setup: ScenarioSetup, store: Store) -> None:
    await store.commit([setup.change("parent", Cancel("alice"))])


async def commits_a_completion_with_successors(setup: ScenarioSetup, store: Store) -> None:
    successors = tuple(StoreHarness(store, setup.clock).creation(id=TaskId(name)) for name in ("next", "last"))
    complete = Complete(1, encode("done"), spawned=successors, quota=Quota(live=100, created=100))
    await store.commit([setup.change("parent", complete)])


async def claims_two(setup: ScenarioSetup, store: Store) -> None:
    await StoreHarness(store, setup.clock).claim(limit=2, holder="worker-2")


async def extends_two(setup: ScenarioSetup, store: Store) -> None:
    held = [HeldAttempt(setup.tasks[name].id, 1) for name in ("one", "two")]
    await store.extend_leases(held, until=setup.clock.now() + 3 * LEASE)


async def releases_a_key(setup: ScenarioSetup, store: Store) -> None:
    await store.release_key(setup.tasks["one"].id, "taken")


async def prunes(setup: ScenarioSetup, store: Store) -> None:
    expires_at = setup.tasks["ended"].expires_at
    assert expires_at is not None
    await store.prune(now=expires_at, limit=10)


async def prunes_a_named_task(setup: ScenarioSetup, store: Store) -> None:
    task = setup.tasks["ended"]
    await store.prune(now=task.created_at, limit=10, only=[task.id])


async def creates_a_secret(setup: ScenarioSetup, store: Store) -> None:  # noqa: ARG001 - all scenarios have these parameters
    await store.get_or_create_secret("key")


async def commits_a_transition(setup: ScenarioSetup, store: Store) -> None:
    data = encode({"text": "x"})
    move = TakeTransition("submit", "draft", 0, "review", "ann", "it is ready", data, fence=1)
    await store.commit([setup.change("instance", move)])


async def commits_the_cancel_of_an_instance(setup: ScenarioSetup, store: Store) -> None:
    into = TakeTransition("drop", "draft", 0, "dropped", "ann")
    await store.commit([setup.change("instance", Cancel("ann", "no need", into))])


async def saves_definitions(setup: ScenarioSetup, store: Store) -> None:  # noqa: ARG001 - all scenarios have these parameters
    await store.save_definitions(NAMESPACE, {Tool("release", "1"): b"one", Tool("release", "2"): b"two"})


async def merges_durations(setup: ScenarioSetup, store: Store) -> None:  # noqa: ARG001 - all scenarios have these parameters
    await store.merge_durations(
        NAMESPACE, {"build": DurationHistogram().with_duration(1), "known": DurationHistogram().with_duration(2)}
    )


SCENARIOS: dict[str, list[Callable[[ScenarioSetup, Store], Awaitable[None]]]] = {
    "create": [creates, creates_and_starts],
    "commit": [
        commits_one_of_everything,
        commits_several_tasks,
        commits_an_end_that_affects_the_whole_family,
        commits_a_completion_with_successors,
        commits_a_transition,
        commits_the_cancel_of_an_instance,
    ],
    "claim": [claims_two],
    "extend_leases": [extends_two],
    "release_key": [releases_a_key],
    "prune": [prunes, prunes_a_named_task],
    "get_or_create_secret": [creates_a_secret],
    "save_definitions": [saves_definitions],
    "merge_durations": [merges_durations],
}
