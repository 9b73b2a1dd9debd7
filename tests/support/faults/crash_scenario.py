"""A store with some tasks in it, made anew for each crash, and everything that can be written to it."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from raincheck.core.change import Change
from raincheck.core.commands import Answer, Cancel, Command, Complete, Note, Park, Transition
from raincheck.core.decide import decide
from raincheck.core.histogram import DurationHistogram
from raincheck.core.limits import Quota
from raincheck.core.payload import encode
from raincheck.core.records import Artifact, Task, TaskId, Tool
from raincheck.stores.base import Store
from raincheck.stores.requests import ClaimRequest, HeldAttempt, TaskQuery
from raincheck.testing import CrashPlan, FakeClock, StoreHarness, check_invariants
from raincheck.testing.harness import EVERYTHING, LEASE, NAMESPACE
from raincheck.testing.invariants import BEGINNING

Snapshot: TypeAlias = dict[TaskId, object]

BESIDE = {
    "lines": "SELECT namespace, priority, served FROM lines",
    "secrets": "SELECT name, length(bytes) FROM secrets",
    "durations": "SELECT namespace, tool, counts FROM durations",
    "definitions": "SELECT namespace, tool, tool_version, body FROM definitions",
}
"""What belongs to no task. How far lines are served shows else only in what is claimed later, and what is in a secret
is another in every run."""


class Data(Protocol):
    """Where a kind of store keeps its data, which can be made anew."""

    def begin_anew(self) -> None:
        """Have fresh data from now on."""
        ...

    def store(self, plan: CrashPlan | None) -> Store:
        """A store on the data, not opened yet. With a plan, it dies where that says."""
        ...

    async def ask(self, query: str) -> list[Any]:
        """What a query gives."""
        ...


async def snapshot(store: Store) -> Snapshot:
    """Everything that can be read, by task."""
    page = await store.list_tasks(TaskQuery(EVERYTHING), now=BEGINNING, limit=100)
    return {
        task.id: (
            await store.view(task.id, EVERYTHING, now=BEGINNING),
            await store.journal(task.id, EVERYTHING, now=BEGINNING),
            await store.history(task.id, EVERYTHING, now=BEGINNING),
            await store.artifact(task.id, "report", EVERYTHING, now=BEGINNING),
        )
        for task in page.tasks
    }


class World:
    """Some tasks, made anew for each crash."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.clock = FakeClock()
        self.tasks: dict[str, Task] = {}

    async def make_store(self, plan: CrashPlan) -> Store:
        await self.begin_anew()
        store = self.data.store(plan)
        await store.open()
        return store

    async def begin_anew(self) -> None:
        self.data.begin_anew()
        self.clock = FakeClock()
        store = self.data.store(None)
        await store.open()
        scene = StoreHarness(store, self.clock)
        ended = await scene.apply(await scene.create(), Cancel("alice"))
        self.clock.advance(100_000)
        grandparent = await scene.create_running()
        parent = await scene.create_running(parent_id=grandparent.id)
        await scene.apply(grandparent, Park(1, seen_signals=0))
        one = await scene.create_running(idempotency_key="taken", request_digest="digest")
        two = await scene.create_running()
        asking = await scene.create_running()
        asking = await scene.apply(asking, Note(1, input_requests=(scene.input_request("publish"),)))
        process = await scene.create_running(state="draft")
        queued = [await scene.create() for _ in range(2)]
        self.tasks = {"ended": ended, "one": one, "two": two, "asking": asking, "queued": queued[0], "parent": parent}
        self.tasks["process"] = process
        child = await scene.create(parent_id=parent.id)
        await scene.create(parent_id=child.id)
        await store.merge_durations(NAMESPACE, {"known": DurationHistogram().with_duration(1)})
        await store.close()

    async def left(self) -> Snapshot:
        """What is there, read without a plan."""
        store = self.data.store(None)
        await store.open()
        try:
            await check_invariants(store)
            return await snapshot(store) | await self.beside()
        finally:
            await store.close()

    async def beside(self) -> Snapshot:
        return {TaskId(name): await self.data.ask(query) for name, query in BESIDE.items()}

    def change(self, name: str, command: Command) -> Change:
        change = decide(self.tasks[name], command, self.clock.now())
        assert change is not None
        return change


async def creates(world: World, store: Store) -> None:
    creation = StoreHarness(store, world.clock).creation(
        id=TaskId("new"), caller=encode("alice"), idempotency_key="key", request_digest="digest"
    )
    await store.create(creation, quota=Quota(live=100, created=100), now=world.clock.now())


async def creates_and_begins(world: World, store: Store) -> None:
    tool = Tool("other")
    creation = StoreHarness(store, world.clock).creation(id=TaskId("new"), tool=tool)
    offer = ClaimRequest(NAMESPACE, frozenset({tool}), "creator", LEASE, 1)
    await store.create(creation, quota=Quota(live=100, created=100), now=world.clock.now(), claim=offer)


async def commits_one_of_everything(world: World, store: Store) -> None:
    scene = StoreHarness(store, world.clock)
    note = Note(
        1,
        status_message="working",
        steps=(scene.step("load"), scene.step("crunch")),
        input_requests=(scene.input_request("sure"),),
        artifacts=(Artifact("report", encode("draft"), world.clock.now()),),
        variables=encode({"n": 1}),
        spawned=(scene.creation(id=TaskId("child")),),
    )
    await store.commit([world.change("one", note)])


async def commits_several_tasks(world: World, store: Store) -> None:
    question = StoreHarness(store, world.clock).input_request("publish")
    answer = Answer((question,), {"publish": encode("yes")}, "alice")
    await store.commit(
        [
            world.change("one", Complete(1, encode("done"))),
            world.change("two", Cancel("alice")),
            world.change("asking", answer),
        ]
    )


async def commits_an_end_that_the_whole_family_hears_of(world: World, store: Store) -> None:
    await store.commit([world.change("parent", Cancel("alice"))])


async def commits_a_completion_with_what_comes_after_it(world: World, store: Store) -> None:
    successors = tuple(StoreHarness(store, world.clock).creation(id=TaskId(name)) for name in ("next", "last"))
    complete = Complete(1, encode("done"), spawned=successors, quota=Quota(live=100, created=100))
    await store.commit([world.change("parent", complete)])


async def claims_two(world: World, store: Store) -> None:
    await StoreHarness(store, world.clock).claim(limit=2, holder="worker-2")


async def extends_two(world: World, store: Store) -> None:
    held = [HeldAttempt(world.tasks[name].id, 1) for name in ("one", "two")]
    await store.extend_leases(held, until=world.clock.now() + 3 * LEASE)


async def releases_a_key(world: World, store: Store) -> None:
    await store.release_key(world.tasks["one"].id, "taken")


async def prunes(world: World, store: Store) -> None:
    expires_at = world.tasks["ended"].expires_at
    assert expires_at is not None
    await store.prune(now=expires_at, limit=10)


async def prunes_one_that_is_named(world: World, store: Store) -> None:
    task = world.tasks["ended"]
    await store.prune(now=task.created_at, limit=10, only=[task.id])


async def asks_first_for_a_secret(world: World, store: Store) -> None:  # noqa: ARG001 - as the others
    await store.get_or_create_secret("key")


async def commits_a_transition(world: World, store: Store) -> None:
    data = encode({"text": "x"})
    move = Transition("submit", "draft", 0, "review", "ann", "it is ready", data, fence=1)
    await store.commit([world.change("process", move)])


async def commits_the_cancel_of_a_process(world: World, store: Store) -> None:
    into = Transition("drop", "draft", 0, "dropped", "ann")
    await store.commit([world.change("process", Cancel("ann", "no need", into))])


async def remembers(world: World, store: Store) -> None:  # noqa: ARG001 - as the others
    await store.save_definitions(NAMESPACE, {Tool("release", "1"): b"one", Tool("release", "2"): b"two"})


async def learns(world: World, store: Store) -> None:  # noqa: ARG001 - as the others
    await store.merge_durations(
        NAMESPACE, {"build": DurationHistogram().with_duration(1), "known": DurationHistogram().with_duration(2)}
    )


SCENARIOS: dict[str, list[Callable[[World, Store], Awaitable[None]]]] = {
    "create": [creates, creates_and_begins],
    "commit": [
        commits_one_of_everything,
        commits_several_tasks,
        commits_an_end_that_the_whole_family_hears_of,
        commits_a_completion_with_what_comes_after_it,
        commits_a_transition,
        commits_the_cancel_of_a_process,
    ],
    "claim": [claims_two],
    "extend_leases": [extends_two],
    "release_key": [releases_a_key],
    "prune": [prunes, prunes_one_that_is_named],
    "get_or_create_secret": [asks_first_for_a_secret],
    "save_definitions": [remembers],
    "merge_durations": [learns],
}
