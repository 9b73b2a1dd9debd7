"""The process dies at every point of every writing method, and what is left is all of what it did, or nothing."""

import asyncio
import inspect
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from raincheck.core.change import Change
from raincheck.core.commands import Answer, Cancel, Command, Complete, Note, Park
from raincheck.core.content import Artifact
from raincheck.core.decide import decide
from raincheck.core.durations import Sketch
from raincheck.core.limits import Quota
from raincheck.core.payload import encode
from raincheck.core.records import Task, TaskId, Tool
from raincheck.stores.interface import Store
from raincheck.stores.requests import ClaimRequest, HeldAttempt, TaskQuery
from raincheck.stores.sqlite import SqliteStore
from raincheck.stores.sqlite.queries import QUERIES
from raincheck.testing import CrashPlan, FakeClock, Scene, check_invariants, enumerate_crashes
from raincheck.testing.invariants import BEGINNING
from raincheck.testing.scene import EVERYTHING, LEASE, NAMESPACE

pytestmark = pytest.mark.anyio

Snapshot: TypeAlias = dict[TaskId, object]


class CrashingConnection(sqlite3.Connection):
    """Reports every statement before it runs, and every commit after it ran too: then the reply is lost."""

    plan: CrashPlan

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        self.plan.reach(sql)
        cursor = super().execute(sql, parameters)
        if sql == "COMMIT":
            self.plan.reach("after COMMIT")
        return cursor


def crashing_connect(plan: CrashPlan, path: str, timeout: float) -> sqlite3.Connection:
    factory = type("Planned", (CrashingConnection,), {"plan": plan})
    return sqlite3.connect(path, timeout=timeout, isolation_level=None, factory=factory)


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
    """A file with some tasks in it, made anew for each crash."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.runs = 0
        self.tasks: dict[str, Task] = {}

    @property
    def path(self) -> Path:
        return self.folder / f"{self.runs}.db"

    async def make_store(self, plan: CrashPlan) -> Store:
        await self.begin_anew()
        store = SqliteStore(self.path, connect=partial(crashing_connect, plan))
        await store.open()
        return store

    async def begin_anew(self) -> None:
        self.runs += 1
        self.clock = FakeClock()
        store = SqliteStore(self.path, synchronous="NORMAL")
        await store.open()
        scene = Scene(store, self.clock)
        ended = await scene.do(await scene.create(), Cancel("alice"))
        self.clock.advance(100_000)
        grandparent = await scene.begin()
        parent = await scene.begin(parent_id=grandparent.id)
        await scene.do(grandparent, Park(1, seen=0))
        one = await scene.begin(idempotency_key="taken", request_digest="digest")
        two = await scene.begin()
        asking = await scene.begin()
        asking = await scene.do(asking, Note(1, asked=(scene.question("publish"),)))
        queued = [await scene.create() for _ in range(2)]
        self.tasks = {"ended": ended, "one": one, "two": two, "asking": asking, "queued": queued[0], "parent": parent}
        child = await scene.create(parent_id=parent.id)
        await scene.create(parent_id=child.id)
        await store.learn(NAMESPACE, {"known": Sketch().with_one(1)})
        await store.close()

    async def left(self) -> Snapshot:
        """What is there, read without a plan."""
        store = SqliteStore(self.path)
        await store.open()
        try:
            await check_invariants(store)
            return await snapshot(store) | await asyncio.to_thread(self.beside)
        finally:
            await store.close()

    def beside(self) -> Snapshot:
        """What belongs to no task. How far lines are served shows else only in what is claimed later, and what is in
        a secret is another in every run."""
        look = {
            "lines": "SELECT * FROM lines",
            "secrets": "SELECT name, length(bytes) FROM secrets",
            "durations": "SELECT * FROM durations",
        }
        with closing(sqlite3.connect(self.path)) as connection:
            return {TaskId(name): connection.execute(sql).fetchall() for name, sql in look.items()}

    def change(self, name: str, command: Command) -> Change:
        change = decide(self.tasks[name], command, self.clock.now())
        assert change is not None
        return change


async def creates(world: World, store: Store) -> None:
    creation = Scene(store, world.clock).creation(
        id=TaskId("new"), caller=encode("alice"), idempotency_key="key", request_digest="digest"
    )
    await store.create(creation, quota=Quota(live=100, created=100), now=world.clock.now())


async def creates_and_begins(world: World, store: Store) -> None:
    tool = Tool("other")
    creation = Scene(store, world.clock).creation(id=TaskId("new"), tool=tool)
    offer = ClaimRequest(NAMESPACE, frozenset({tool}), "creator", LEASE, 1)
    await store.create(creation, quota=Quota(live=100, created=100), now=world.clock.now(), claim=offer)


async def commits_one_of_everything(world: World, store: Store) -> None:
    scene = Scene(store, world.clock)
    note = Note(
        1,
        status_message="working",
        steps=(scene.step("load"), scene.step("crunch")),
        asked=(scene.question("sure"),),
        artifacts=(Artifact("report", encode("draft"), world.clock.now()),),
        variables=encode({"n": 1}),
        spawned=(scene.creation(id=TaskId("child")),),
    )
    await store.commit([world.change("one", note)])


async def commits_several_tasks(world: World, store: Store) -> None:
    question = Scene(store, world.clock).question("publish")
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
    successors = tuple(Scene(store, world.clock).creation(id=TaskId(name)) for name in ("next", "last"))
    complete = Complete(1, encode("done"), spawned=successors, quota=Quota(live=100, created=100))
    await store.commit([world.change("parent", complete)])


async def claims_two(world: World, store: Store) -> None:
    await Scene(store, world.clock).claim(limit=2, holder="worker-2")


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
    await store.secret("key")


async def learns(world: World, store: Store) -> None:  # noqa: ARG001 - as the others
    await store.learn(NAMESPACE, {"build": Sketch().with_one(1), "known": Sketch().with_one(2)})


SCENARIOS: dict[str, list[Callable[[World, Store], Awaitable[None]]]] = {
    "create": [creates, creates_and_begins],
    "commit": [
        commits_one_of_everything,
        commits_several_tasks,
        commits_an_end_that_the_whole_family_hears_of,
        commits_a_completion_with_what_comes_after_it,
    ],
    "claim": [claims_two],
    "extend_leases": [extends_two],
    "release_key": [releases_a_key],
    "prune": [prunes, prunes_one_that_is_named],
    "secret": [asks_first_for_a_secret],
    "learn": [learns],
}
READING = {
    "next_due",
    "overdue",
    "load",
    "view",
    "journal",
    "artifact",
    "history",
    "list_tasks",
    "count_live",
    "listen",
    "capabilities",
}


def test_every_writing_method_has_its_scenario() -> None:
    methods = {name for name, _ in inspect.getmembers(Store) if not name.startswith("_")}
    assert methods == SCENARIOS.keys() | READING | {"open", "close", "twin"}


@pytest.mark.parametrize(
    "scenario", [scenario for scenarios in SCENARIOS.values() for scenario in scenarios], ids=lambda one: one.__name__
)
async def test_a_crash_anywhere_leaves_all_or_nothing(
    tmp_path: Path, scenario: Callable[[World, Store], Awaitable[None]]
) -> None:
    world = World(tmp_path)
    await world.begin_anew()
    nothing = await world.left()
    seen: list[Snapshot] = []

    async def check() -> None:
        left = await world.left()
        if not seen:
            seen.append(left)
            assert left != nothing
        (everything,) = seen
        assert left in (nothing, everything)

    points = await enumerate_crashes(world.make_store, partial(scenario, world), check)
    # A secret is looked for before it is made.
    assert next(point for point in points if point != QUERIES["secret"]) == "BEGIN IMMEDIATE"
    assert points[-2:] == ["COMMIT", "after COMMIT"]
    # And what it is for, between them: the least looks at the schema, and writes a row.
    assert len(points) >= 5


async def test_a_claim_says_once_how_far_it_served_the_line_however_many_it_takes(tmp_path: Path) -> None:
    world = World(tmp_path)
    left: list[object] = []

    async def check() -> None:
        left.append((await asyncio.to_thread(world.beside))[TaskId("lines")])

    points = await enumerate_crashes(world.make_store, partial(claims_two, world), check)
    assert points.count(QUERIES["advance_lines"]) == 1
    done, *crashed, nothing = left
    assert crashed == [left[1]] * len(crashed)
    assert done == nothing != left[1]


async def test_a_task_that_is_created_and_begun_is_written_once_after_one_look_at_who_waits(tmp_path: Path) -> None:
    world = World(tmp_path)
    begun: list[object] = []

    async def check() -> None:
        begun.append((await world.left()).get(TaskId("new")))

    points = await enumerate_crashes(world.make_store, partial(creates_and_begins, world), check)
    plain = await enumerate_crashes(world.make_store, partial(creates, world), check)
    assert points.count(QUERIES["next_due"]) == 1
    assert Counter(points) - Counter(plain) == Counter(
        {QUERIES["next_due"]: 1, QUERIES["insert_entry"]: 1, QUERIES["advance_lines"]: 1}
    )
    assert "running" in str(begun[0])


async def test_what_was_not_acknowledged_may_have_happened_and_what_was_acknowledged_did(tmp_path: Path) -> None:
    world = World(tmp_path)
    lost_replies: list[bool] = []

    async def check() -> None:
        lost_replies.append("new" in await world.left())

    points = await enumerate_crashes(world.make_store, partial(creates, world), check)
    acknowledged, *crashed = lost_replies
    assert acknowledged
    assert crashed == [point == "after COMMIT" for point in points]


async def test_a_crash_anywhere_while_a_new_file_is_made_leaves_one_that_opens(tmp_path: Path) -> None:
    paths: list[Path] = []

    async def make_store(plan: CrashPlan) -> Store:
        paths.append(tmp_path / f"{len(paths)}.db")
        return SqliteStore(paths[-1], connect=partial(crashing_connect, plan))

    async def check() -> None:
        store = SqliteStore(paths[-1])
        await store.open()
        await Scene(store, FakeClock()).create()
        await check_invariants(store)
        await store.close()

    points = await enumerate_crashes(make_store, lambda store: store.open(), check)
    assert any("CREATE TABLE tasks" in point for point in points)
