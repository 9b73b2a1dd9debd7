"""What is done inside a transaction that writes.

What new tasks and changes become in the tables, inside of a transaction.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, TypeAlias, cast

from psycopg import AsyncConnection, AsyncCursor
from psycopg.errors import UniqueViolation

from raincheck.core.change import Change, Creation
from raincheck.core.commands import Due
from raincheck.core.decide import decide
from raincheck.core.family import LiveChildren, Parent, advance, follow
from raincheck.core.histogram import Sketch, merge_news
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Quota
from raincheck.core.owner import Scope
from raincheck.core.records import Task, TaskId, Tool
from raincheck.errors import AlreadyRecorded, QuotaExceeded, StaleChange, TaskNotFound
from raincheck.stores import sql as shared
from raincheck.stores.dispatcher import Jobs
from raincheck.stores.postgres import reads, rows
from raincheck.stores.postgres.notifications import tell
from raincheck.stores.postgres.reads import QUERIES
from raincheck.stores.requests import (
    DUE_LIMIT,
    ClaimRequest,
    HeldAttempt,
    check_definitions,
    check_named_once,
    new_secret,
    page_size,
)
from raincheck.stores.sql import note_journals

Parameters: TypeAlias = rows.Parameters | Sequence[Any]


class Tables:
    """The tables, as they are within a transaction. It remembers which tasks it touched, for those who listen."""

    def __init__(
        self, connection: AsyncConnection[rows.Row], jobs: Jobs[Any] | None, channel: str, origin: str
    ) -> None:
        self.connection = connection
        self.touched: list[TaskId] = []
        self._jobs = jobs
        self._channel = channel
        self._origin = origin

    async def execute(self, query: str, parameters: Parameters | None = None) -> AsyncCursor[rows.Row]:
        return await self.connection.execute(cast("Any", QUERIES[query]), parameters)

    async def fetch(self, query: str, parameters: rows.Parameters) -> list[rows.Row]:
        return await (await self.execute(query, parameters)).fetchall()

    async def tasks(self, query: str, parameters: rows.Parameters) -> list[Task]:
        return list(map(shared.task_of, await self.fetch(query, parameters)))

    async def keep(self, change: Change) -> None:
        """Keep a change, and what it means for the task's family."""
        following = follow(change)
        found: list[Task] | None = None
        while (step := advance(following, found)) is not None:
            match step:
                case Change():
                    await self.write(step)
                    found = None
                case Parent(task_id):
                    found = await self.tasks("lock_parent", {"id": task_id})
                case LiveChildren(parent_id):
                    found = await self.tasks("lock_live_children", {"id": parent_id})

    async def insert(self, creation: Creation, quota: Quota, now: datetime) -> None:
        """Begin a new task, if its owner may have one more."""
        has_job = rows.wants_job(None, creation.task)
        await self._insert("insert_task", creation, rows.parameters_of_creation(creation), quota, now, has_job=has_job)

    async def insert_offered(
        self, creation: Creation, begun: Change, offer: ClaimRequest, quota: Quota, now: datetime
    ) -> bool:
        """The same with its first attempt, if nothing else waits for whoever offers that. Says whether that is so."""
        parameters = (
            rows.parameters_of_offer(creation, begun)
            | reads.tools_parameters(offer.namespace, offer.tools)
            | {"now": shared.to_micros(now)}
        )
        return not await self._insert("insert_offered", creation, parameters, quota, now, has_job=True)

    async def _insert(
        self,
        query: str,
        creation: Creation,
        parameters: rows.Parameters,
        quota: Quota,
        now: datetime,
        *,
        has_job: bool,
    ) -> bool:
        """Whether the new task has to wait."""
        new = creation.task
        since = None if quota.created is None else shared.to_micros(now - quota.window)
        bounds = {"most_live": quota.live or 0, "most_created": quota.created, "since": since}
        parameters = parameters | bounds | self._news(new.id)
        statement = QUERIES[query]
        if self._jobs is not None and has_job:
            statement, parameters = _with_job(statement, self._jobs.deferral), parameters | self._jobs.parameters(new)
        inserted = await self._insert_once(statement, parameters, lambda: AlreadyRecorded(new.id))
        ((must_wait, live, latest, _),) = await inserted.fetchall()
        # Counted before it, in one statement with it. If it is one too many, it was left out.
        quota.check_live(live)
        if quota.created is not None:
            quota.check_created(rows.moment(latest), now)
        self.touched.append(new.id)
        return must_wait

    async def write(self, change: Change, *, has_job: bool = False, withdraws: bool = False) -> None:
        """Do what the change says, if it still holds, and begin the tasks that it spawns.

        A task that can run then gets a job, unless whoever writes has one in hand for it. One that leaves the queue
        gives up its job, unless it is begun; with `withdraws`, also then.
        """
        before, after = change.before, change.after
        # If it holds, the stored task has the phase from before.
        job_id = await self.enqueue(after) if rows.wants_job(before, after) and not has_job else None
        parameters = rows.parameters_of_change(change, job_id)
        statement = QUERIES["update_task"]
        leaves = before.phase is Phase.QUEUED and after.phase not in (Phase.QUEUED, Phase.RUNNING)
        if self._jobs is not None and (leaves or withdraws):
            statement = _without_job(self._jobs.withdrawal)
        updated = await self.connection.execute(cast("Any", statement), parameters | self._news(after.id))
        row = await updated.fetchone()
        if row is None:
            raise StaleChange(before.id)
        pk = row[0]
        if change.leaves_state:
            await self.execute("forget_steps", {"pk": pk})
            await self.execute("forget_answered", {"pk": pk})
        for step in change.steps:
            finished_at = shared.to_micros(step.finished_at)
            values = (pk, step.name, step.occurrence, step.fingerprint, step.result, step.attempt, finished_at)
            duplicate = partial(AlreadyRecorded.step, before.id, step.name, step.occurrence)
            await self._insert_once(QUERIES["insert_steps"], values, duplicate)
        if change.inputs:
            await self._write_inputs(pk, change)
        for artifact in change.artifacts:
            values = (pk, artifact.name, artifact.content, shared.to_micros(artifact.kept_at))
            await self.execute("put_artifact", values)
        self.touched.append(after.id)
        for creation in change.spawned:
            await self.insert(creation, change.quota, creation.task.created_at)

    async def tell_of(self, task_ids: Sequence[TaskId]) -> None:
        """Tell others of tasks that changed otherwise than by `insert` or `write`."""
        self.touched += task_ids
        if task_ids:
            await self.execute("tell", {"channel": self._channel, "news": list(tell(self._origin, task_ids))})

    async def enqueue(self, task: Task) -> int | None:
        """Have somebody told that there is something to run, of this task's tool."""
        if self._jobs is None:
            return None
        query: Any = f"SELECT {self._jobs.deferral}"
        row = await (await self.connection.execute(query, self._jobs.parameters(task))).fetchone()
        return None if row is None else row[0]

    async def _write_inputs(self, pk: int, change: Change) -> None:
        for question in change.inputs:
            if question.answered_at is not None:
                answer = (question.answer, shared.to_micros(question.answered_at), pk, question.key)
                await self.execute("answer_input", answer)
                continue
            asked_at = shared.to_micros(question.asked_at)
            values = (pk, question.key, str(question.kind), question.request, asked_at, question.attempt)
            duplicate = partial(AlreadyRecorded.question, change.before.id, question.key)
            await self._insert_once(QUERIES["insert_input"], values, duplicate)

    async def _insert_once(
        self, statement: str, parameters: Parameters, duplicate: Callable[[], AlreadyRecorded]
    ) -> AsyncCursor[rows.Row]:
        try:
            return await self.connection.execute(cast("Any", statement), parameters)
        except UniqueViolation as error:
            if error.diag.constraint_name == "tasks_by_key":
                # Another who asked with the same key was quicker. Whoever tries again finds their task.
                raise
            raise duplicate() from error

    def _news(self, task_id: TaskId) -> rows.Parameters:
        return {"channel": self._channel, "news": next(tell(self._origin, [task_id]))}


@lru_cache(8)
def _with_job(statement: str, deferral: str) -> str:
    """A statement that keeps a new task, and queues its job in one go."""
    return statement.replace("%(job_id)s", deferral)


@lru_cache(8)
def _without_job(withdrawal: str) -> str:
    """The statement that writes a change, and takes back the job that the task was queued with."""
    return QUERIES["update_task"].replace("%(withdrawal)s", withdrawal)


class Creating:
    """Keeps a new task, however often it is tried, and begins it if somebody offers that and nothing else waits."""

    def __init__(self, creation: Creation, quota: Quota, now: datetime, offer: ClaimRequest | None) -> None:
        self._creation = creation
        self._quota = quota
        self._now = now
        self._offer = offer
        self._tries = 0
        # With a key, it is looked for first. Without, one statement keeps it, which may be said twice: its id is new.
        self.is_single = creation.task.idempotency_key is None

    async def __call__(self, tables: Tables) -> Task:
        self._tries += 1
        new = self._creation.task
        if new.idempotency_key is not None:
            found = await _task_with_key(tables, self._creation, self._now)
            if found is not None:
                return found
        try:
            return await self._keep(tables)
        except (AlreadyRecorded, QuotaExceeded) as error:
            if self._tries == 1:
                raise
            # Perhaps it was kept before, and only the answer was lost. Then it may be one too many by itself.
            try:
                kept = await reads.load(tables.connection, new.id, Scope.within(new.namespace), self._now)
            except TaskNotFound:
                raise error from None
            tables.touched.append(new.id)
            return kept

    async def _keep(self, tables: Tables) -> Task:
        creation, offer = self._creation, self._offer
        begun = None if offer is None else next(iter(offer.begin([creation.task], self._now)), None)
        if offer is None or begun is None:
            await tables.insert(creation, self._quota, self._now)
            return creation.task
        is_begun = await tables.insert_offered(creation, begun, offer, self._quota, self._now)
        return begun.after if is_begun else creation.task


async def commit(tables: Tables, changes: Sequence[Change]) -> None:
    check_named_once(changes)
    for change in changes:
        await tables.keep(change)


def is_single(change: Change) -> bool:
    """Whether it takes one statement to keep the change: it brings nothing else, and concerns no relative."""
    ends = change.after.is_terminal and not change.before.is_terminal
    concerns_family = ends and (change.after.parent_id is not None or change.after.phase is not Phase.COMPLETED)
    brings_more = change.steps or change.inputs or change.artifacts or change.spawned or change.leaves_state
    # A job that is queued before it turns out that the change does not hold is taken back with it.
    return not (concerns_family or brings_more or rows.wants_job(change.before, change.after))


async def claim(tables: Tables, request: ClaimRequest, now: datetime) -> tuple[Task, ...]:
    parameters = reads.tools_parameters(request.namespace, request.tools) | {
        "now": shared.to_micros(now),
        "limit": request.limit,
        "due_limit": DUE_LIMIT,
    }
    if request.told is None and not request.withdraws:
        for change in request.wake(await tables.tasks("due_tasks", parameters), now):
            await tables.write(change)
    found = await tables.fetch("queued_tasks", parameters)
    queued = list(map(shared.task_of, found))
    if not queued and request.told is not None:
        queued = await _look_closer(tables, request, request.told, now)
    begun = request.begin(queued, now)
    for change in begun:
        is_others = request.told not in (None, change.after.tool)
        await tables.write(change, withdraws=is_others or request.withdraws)
        if is_others:
            await _give_back(tables, request)
    if request.journals is not None:
        note_journals(request.journals, [change.after for change in begun], found)
    return tuple(change.after for change in begun)


async def _look_closer(tables: Tables, request: ClaimRequest, told: Tool, now: datetime) -> list[Task]:
    """What a job was queued for, if it is not in the queue for all to see. It must not be left: nobody else comes.

    It may be parked till a moment that is past. Or somebody has it just now, who will be done with it and leave it in
    the queue: a child that ends tells its parent, say.
    """
    parameters = reads.tools_parameters(request.namespace, frozenset({told})) | {"limit": 1, "due_limit": 1}
    for change in request.wake(await tables.tasks("due_tasks", parameters | {"now": shared.to_micros(now)}), now):
        await tables.write(change, has_job=True)
    found: list[Task] = []
    while not found and await tables.tasks("waiting_tasks", parameters):
        # Not for long: a connection is held meanwhile. The job comes again.
        await tables.execute("wait_briefly")
        found = await tables.tasks("queued_tasks_of_others", parameters)
    return found


async def _give_back(tables: Tables, request: ClaimRequest) -> None:
    """The job of one tool served to begin a task of another, whose own was taken back: give one back for it."""
    assert request.told is not None  # noqa: S101 - else there is nothing to give back
    parameters = reads.tools_parameters(request.namespace, frozenset({request.told})) | {"limit": 1}
    for left in await tables.tasks("waiting_tasks", parameters):
        await tables.enqueue(left)


async def wake_due(tables: Tables, now: datetime) -> None:
    """Let parked tasks through to the queue whose moment has come."""
    for task in await tables.tasks("due_of_all", {"now": shared.to_micros(now), "due_limit": DUE_LIMIT}):
        change = decide(task, Due(), now)
        if change is not None:
            await tables.write(change)


async def extend_leases(tables: Tables, held: Sequence[HeldAttempt], until: datetime) -> frozenset[TaskId]:
    parameters = {
        "ids": [one.task_id for one in held],
        "fences": [one.fence for one in held],
        "until": shared.to_micros(until),
    }
    kept = {task_id for (task_id,) in await tables.fetch("extend_leases", parameters)}
    return frozenset(one.task_id for one in held if one.task_id not in kept)


async def release_key(tables: Tables, task_id: TaskId, key: str) -> None:
    await tables.execute("release_key", {"id": rows.bindable(task_id), "key": rows.bindable(key)})


async def prune(tables: Tables, now: datetime, limit: int, only: Sequence[TaskId] | None) -> tuple[TaskId, ...]:
    if only is None:
        pruned = await tables.fetch("prune_tasks", {"now": shared.to_micros(now), "limit": page_size(limit)})
    else:
        named = list(dict.fromkeys(map(rows.bindable, only)))
        pruned = await tables.fetch("prune_named", {"only": named, "limit": page_size(limit)})
    ids = tuple(TaskId(row[0]) for row in pruned)
    await tables.tell_of(ids)
    return ids


async def secret(tables: Tables, name: str) -> bytes:
    await tables.execute("insert_secret", {"name": name, "bytes": new_secret()})
    # Another handle may have been first.
    found = await reads.secret(tables.connection, name)
    assert found is not None  # noqa: S101 - it was inserted, or was there
    return found


async def remember(tables: Tables, namespace: str, definitions: Mapping[Tool, bytes]) -> dict[Tool, bytes]:
    check_definitions(namespace, definitions)
    for tool, body in definitions.items():
        parameters = {"namespace": namespace, "tool": tool.name, "tool_version": tool.version, "body": body}
        await tables.execute("put_definition", parameters)
    found = await tables.fetch("needed_definitions", {"namespace": namespace})
    return {Tool(name, version): body for name, version, body in found}


async def learn(tables: Tables, namespace: str, news: Mapping[str, Sketch]) -> dict[str, Sketch]:
    await tables.execute("lock_durations", {"namespace": namespace})
    known = await reads.durations(tables.connection, namespace)
    changed = merge_news(known, news)
    for tool, sketch in changed.items():
        await tables.execute("put_durations", {"namespace": namespace, "tool": tool, "counts": sketch.dump()})
    return known | changed


async def _task_with_key(tables: Tables, creation: Creation, now: datetime) -> Task | None:
    new = creation.task
    parameters = {"namespace": new.namespace, "owner": new.owner.key, "key": new.idempotency_key}
    row = await (await tables.execute("task_with_key", parameters)).fetchone()
    if row is None:
        return None
    task = shared.task_of(row)
    if creation.asks_for(task, shared.digest_of(row), now):
        return task
    # It has expired and would be pruned sooner or later; its key is free again from that moment.
    await tables.execute("delete_task", {"id": task.id})
    return None
