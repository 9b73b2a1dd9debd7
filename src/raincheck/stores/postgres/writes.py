"""Write operations of the PostgreSQL store, each run inside a transaction.

`PostgresTables` applies new tasks and changes to the tables.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar

from psycopg import AsyncCursor

from raincheck.core.change import Change, Creation
from raincheck.core.commands import Due
from raincheck.core.decide import decide
from raincheck.core.effects import LiveChildrenLookup, ParentLookup, advance, family_steps
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Scope
from raincheck.core.policies import Quota
from raincheck.core.records import Task, TaskId, Tool
from raincheck.errors import AlreadyRecorded, QuotaExceeded, StaleChange, TaskNotFound
from raincheck.stores import sql
from raincheck.stores.dispatcher import JobQueue
from raincheck.stores.postgres import rows
from raincheck.stores.postgres.notifications import encode_changes
from raincheck.stores.postgres.rows import QUERIES, Connection
from raincheck.stores.requests import DUE_LIMIT, ClaimRequest, HeldAttempt, check_distinct_tasks, clamp_limit
from raincheck.stores.sql_store import Parameters, Plan, Statement, load, task_with_key, write_contents

T = TypeVar("T")


class PostgresTables:
    """The tables within a transaction. It records the tasks it touched, for the feeds."""

    def __init__(self, connection: Connection, jobs: JobQueue[Any] | None, channel: str, origin: str) -> None:
        self.connection = connection
        self.touched: list[TaskId] = []
        self._jobs = jobs
        self._channel = channel
        self._origin = origin

    async def run(self, plan: Plan[T]) -> T:
        return await rows.run(self.connection, plan)

    async def execute(self, query: str, parameters: Parameters = ()) -> AsyncCursor[sql.Row]:
        return await rows.execute(self.connection, Statement(query, parameters))

    async def fetch(self, query: str, parameters: rows.Parameters) -> list[sql.Row]:
        return await (await self.execute(query, parameters)).fetchall()

    async def tasks(self, query: str, parameters: rows.Parameters) -> list[Task]:
        return list(map(sql.task_from_row, await self.fetch(query, parameters)))

    async def commit(self, change: Change) -> None:
        """Write a change, and its effects on the task's family."""
        steps = family_steps(change)
        found: list[Task] | None = None
        while (step := advance(steps, found)) is not None:
            match step:
                case Change():
                    await self.write(step)
                    found = None
                case ParentLookup(task_id):
                    found = await self.tasks("lock_parent", {"id": task_id})
                case LiveChildrenLookup(parent_id):
                    found = await self.tasks("lock_live_children", {"id": parent_id})

    async def insert(
        self,
        creation: Creation,
        quota: Quota,
        now: datetime,
        claim: ClaimRequest | None = None,
        start: Change | None = None,
    ) -> bool:
        """Insert a new task, if its owner's quota allows it; return whether it has to wait.

        With `start`, it is started instead, unless other work waits for its creator, who made the claim.
        """
        new = creation.task
        if claim is None or start is None:
            query, parameters, has_job = "insert_task", rows.creation_parameters(creation), rows.needs_job(None, new)
        else:
            query, has_job = "insert_started", True
            parameters = rows.direct_start_parameters(creation, start) | {"now": sql.to_micros(now)}
            parameters |= rows.tools_parameters(claim.namespace, claim.tools)
        since = None if quota.created is None else sql.to_micros(now - quota.window)
        bounds = {"most_live": quota.live or 0, "most_created": quota.created, "since": since}
        parameters = parameters | bounds | self._notify_parameters(new.id)
        text = QUERIES[query]
        if self._jobs is not None and has_job:
            text, parameters = _with_job(text, self._jobs.enqueue_sql), parameters | self._jobs.parameters(new)
        statement = Statement(query, parameters, lambda: AlreadyRecorded(new.id))
        inserted = await rows.execute(self.connection, statement, text)
        ((must_wait, live, latest, _),) = await inserted.fetchall()
        # Counted before the insert, in the same statement. A task over the quota was not inserted.
        quota.check_live(live)
        if quota.created is not None:
            quota.check_created(None if latest is None else sql.to_datetime(latest), now)
        self.touched.append(new.id)
        return must_wait

    async def write(self, change: Change, *, has_job: bool = False, withdraw_job: bool = False) -> None:
        """Apply the change, if it is still valid, and insert the tasks that it spawns.

        A task that can run then gets a job, unless the caller holds one for it (`has_job`). A task that leaves the
        queue loses its job, unless it is started; with `withdraw_job`, also if it is started.
        """
        before, after = change.before, change.after
        # If the change is valid, the stored task has the phase from before.
        job_id = await self.enqueue_job(after) if rows.needs_job(before, after) and not has_job else None
        parameters = rows.change_parameters(change, job_id)
        text = QUERIES["update_task"]
        leaves = before.phase is Phase.QUEUED and after.phase not in (Phase.QUEUED, Phase.RUNNING)
        if self._jobs is not None and (leaves or withdraw_job):
            text = _with_withdrawal(self._jobs.withdraw_sql)
        statement = Statement("update_task", parameters | self._notify_parameters(after.id))
        updated = await rows.execute(self.connection, statement, text)
        row = await updated.fetchone()
        if row is None:
            raise StaleChange(before.id)
        await self.run(write_contents(row[0], change))
        self.touched.append(after.id)
        for creation in change.spawned:
            await self.insert(creation, change.quota, creation.task.created_at)

    async def notify(self, task_ids: Sequence[TaskId]) -> None:
        """Notify other handles of tasks that changed in another way than by `insert` or `write`."""
        self.touched += task_ids
        if task_ids:
            messages = list(encode_changes(self._origin, task_ids))
            await self.execute("notify", {"channel": self._channel, "news": messages})

    async def enqueue_job(self, task: Task) -> int | None:
        """Queue a job that announces work of this task's tool."""
        if self._jobs is None:
            return None
        query: Any = f"SELECT {self._jobs.enqueue_sql}"
        row = await (await self.connection.execute(query, self._jobs.parameters(task))).fetchone()
        return None if row is None else row[0]

    def _notify_parameters(self, task_id: TaskId) -> rows.Parameters:
        return {"channel": self._channel, "news": next(encode_changes(self._origin, [task_id]))}


@lru_cache(8)
def _with_job(statement: str, enqueue_sql: str) -> str:
    """Return a statement that inserts a new task and queues its job at once."""
    return statement.replace("%(job_id)s", enqueue_sql)


@lru_cache(8)
def _with_withdrawal(withdraw_sql: str) -> str:
    """Return the statement that writes a change and withdraws the job that the task was queued with."""
    return QUERIES["update_task"].replace("%(withdrawal)s", withdraw_sql)


class CreateTransaction:
    """Creates a task, idempotent under retries, and starts it if the creator offers that and no other work waits."""

    def __init__(self, creation: Creation, quota: Quota, now: datetime, claim: ClaimRequest | None) -> None:
        self._creation = creation
        self._quota = quota
        self._now = now
        self._claim = claim
        self._tries = 0
        # With a key, the task is looked up first. Without one, a single statement inserts it, which may be repeated:
        # its id is new.
        self.is_single = creation.task.idempotency_key is None

    async def __call__(self, tables: PostgresTables) -> Task:
        self._tries += 1
        new = self._creation.task
        if new.idempotency_key is not None:
            found = await tables.run(task_with_key(self._creation, self._now))
            if found is not None:
                return found
        try:
            return await self._insert(tables)
        except (AlreadyRecorded, QuotaExceeded) as error:
            if self._tries == 1:
                raise
            # Perhaps it was stored before, and only the reply was lost. Then it may exceed the quota by itself.
            try:
                stored = await tables.run(load(new.id, Scope.for_namespace(new.namespace), self._now))
            except TaskNotFound:
                raise error from None
            tables.touched.append(new.id)
            return stored

    async def _insert(self, tables: PostgresTables) -> Task:
        creation, claim = self._creation, self._claim
        start = None if claim is None else next(iter(claim.decide_claims([creation.task], self._now)), None)
        must_wait = await tables.insert(creation, self._quota, self._now, claim, start)
        return creation.task if start is None or must_wait else start.after


async def commit(tables: PostgresTables, changes: Sequence[Change]) -> None:
    check_distinct_tasks(changes)
    for change in changes:
        await tables.commit(change)


def is_single(change: Change) -> bool:
    """Return whether one statement stores the change: it brings nothing else, and affects no relative."""
    ends = change.after.is_terminal and not change.before.is_terminal
    affects_family = ends and (change.after.parent_id is not None or change.after.phase is not Phase.COMPLETED)
    brings_more = change.steps or change.inputs or change.artifacts or change.spawned or change.leaves_state
    # A job that is queued before the change turns out to be invalid is rolled back with it.
    return not (affects_family or brings_more or rows.needs_job(change.before, change.after))


async def claim(tables: PostgresTables, request: ClaimRequest, now: datetime) -> tuple[Task, ...]:
    parameters = rows.tools_parameters(request.namespace, request.tools) | {
        "now": sql.to_micros(now),
        "limit": request.limit,
        "due_limit": DUE_LIMIT,
    }
    if request.job_tool is None and not request.withdraw_job:
        for change in request.decide_wakeups(await tables.tasks("due_tasks", parameters), now):
            await tables.write(change)
    found = await tables.fetch("queued_tasks", parameters)
    queued = list(map(sql.task_from_row, found))
    if not queued and request.job_tool is not None:
        queued = await _find_task_of_job(tables, request, request.job_tool, now)
    started = request.decide_claims(queued, now)
    for change in started:
        is_other_tool = request.job_tool not in (None, change.after.tool)
        await tables.write(change, withdraw_job=is_other_tool or request.withdraw_job)
        if is_other_tool:
            await _requeue_job(tables, request)
    if request.journals is not None:
        sql.collect_journals(request.journals, [change.after for change in started], found)
    return tuple(change.after for change in started)


async def _find_task_of_job(tables: PostgresTables, request: ClaimRequest, tool: Tool, now: datetime) -> list[Task]:
    """Return the task a job was queued for, if the queue does not show it. No other worker will come for it.

    It may be parked until a past time. Or another transaction has locked it and will leave it in the queue: for
    example, one in which a child ends and signals its parent.
    """
    parameters = rows.tools_parameters(request.namespace, frozenset({tool})) | {"limit": 1, "due_limit": 1}
    for change in request.decide_wakeups(
        await tables.tasks("due_tasks", parameters | {"now": sql.to_micros(now)}), now
    ):
        await tables.write(change, has_job=True)
    found: list[Task] = []
    while not found and await tables.tasks("waiting_tasks", parameters):
        # Not for long: a connection is held meanwhile. The job is redelivered.
        await tables.execute("wait_briefly")
        found = await tables.tasks("locked_queued_tasks", parameters)
    return found


async def _requeue_job(tables: PostgresTables, request: ClaimRequest) -> None:
    """Replace the job of one tool that started a task of another, whose own job was withdrawn."""
    assert request.job_tool is not None  # noqa: S101 - else there is nothing to requeue
    parameters = rows.tools_parameters(request.namespace, frozenset({request.job_tool})) | {"limit": 1}
    for task in await tables.tasks("waiting_tasks", parameters):
        await tables.enqueue_job(task)


async def wake_due(tables: PostgresTables, now: datetime) -> None:
    """Move parked tasks that are due to the queue."""
    for task in await tables.tasks("due_of_all", {"now": sql.to_micros(now), "due_limit": DUE_LIMIT}):
        change = decide(task, Due(), now)
        if change is not None:
            await tables.write(change)


async def extend_leases(tables: PostgresTables, held: Sequence[HeldAttempt], until: datetime) -> frozenset[TaskId]:
    parameters = {
        "ids": [attempt.task_id for attempt in held],
        "fences": [attempt.fence for attempt in held],
        "until": sql.to_micros(until),
    }
    extended = {task_id for (task_id,) in await tables.fetch("extend_leases", parameters)}
    return frozenset(attempt.task_id for attempt in held if attempt.task_id not in extended)


async def prune(tables: PostgresTables, now: datetime, limit: int, only: Sequence[TaskId] | None) -> tuple[TaskId, ...]:
    if only is None:
        pruned = await tables.fetch("prune_tasks", {"now": sql.to_micros(now), "limit": clamp_limit(limit)})
    else:
        named = list(dict.fromkeys(map(sql.sanitize_text, only)))
        pruned = await tables.fetch("prune_named", {"only": named, "limit": clamp_limit(limit)})
    ids = tuple(TaskId(row[0]) for row in pruned)
    await tables.notify(ids)
    return ids
