"""Write operations of the PostgreSQL store, each run inside a transaction.

`PostgresTables` applies new tasks and changes to the tables.
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
from raincheck.core.family import LiveChildrenLookup, ParentLookup, advance, family_steps
from raincheck.core.histogram import DurationHistogram, merge_histograms
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Quota
from raincheck.core.owner import Scope
from raincheck.core.records import Task, TaskId, Tool
from raincheck.errors import AlreadyRecorded, QuotaExceeded, StaleChange, TaskNotFound
from raincheck.stores import sql as shared
from raincheck.stores.dispatcher import JobQueue
from raincheck.stores.postgres import reads, rows
from raincheck.stores.postgres.notifications import encode_changes
from raincheck.stores.postgres.reads import QUERIES
from raincheck.stores.requests import (
    DUE_LIMIT,
    ClaimRequest,
    HeldAttempt,
    check_definitions,
    check_distinct_tasks,
    clamp_limit,
    generate_secret,
)
from raincheck.stores.sql import collect_journals

Parameters: TypeAlias = rows.Parameters | Sequence[Any]


class PostgresTables:
    """The tables within a transaction. It records the tasks it touched, for the feeds."""

    def __init__(
        self, connection: AsyncConnection[rows.Row], jobs: JobQueue[Any] | None, channel: str, origin: str
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
        return list(map(shared.task_from_row, await self.fetch(query, parameters)))

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

    async def insert(self, creation: Creation, quota: Quota, now: datetime) -> None:
        """Insert a new task, if its owner's quota allows it."""
        has_job = rows.needs_job(None, creation.task)
        await self._insert("insert_task", creation, rows.creation_parameters(creation), quota, now, has_job=has_job)

    async def insert_started(
        self, creation: Creation, start: Change, claim: ClaimRequest, quota: Quota, now: datetime
    ) -> bool:
        """Insert a new task, started unless other work waits for the creator, and return whether it started."""
        parameters = (
            rows.direct_start_parameters(creation, start)
            | reads.tools_parameters(claim.namespace, claim.tools)
            | {"now": shared.to_micros(now)}
        )
        return not await self._insert("insert_started", creation, parameters, quota, now, has_job=True)

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
        """Insert a new task; return whether it has to wait."""
        new = creation.task
        since = None if quota.created is None else shared.to_micros(now - quota.window)
        bounds = {"most_live": quota.live or 0, "most_created": quota.created, "since": since}
        parameters = parameters | bounds | self._notify_parameters(new.id)
        statement = QUERIES[query]
        if self._jobs is not None and has_job:
            statement, parameters = (
                _with_job(statement, self._jobs.enqueue_sql),
                parameters | self._jobs.parameters(new),
            )
        inserted = await self._insert_once(statement, parameters, lambda: AlreadyRecorded(new.id))
        ((must_wait, live, latest, _),) = await inserted.fetchall()
        # Counted before the insert, in the same statement. A task over the quota was not inserted.
        quota.check_live(live)
        if quota.created is not None:
            quota.check_created(rows.to_optional_datetime(latest), now)
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
        statement = QUERIES["update_task"]
        leaves = before.phase is Phase.QUEUED and after.phase not in (Phase.QUEUED, Phase.RUNNING)
        if self._jobs is not None and (leaves or withdraw_job):
            statement = _with_withdrawal(self._jobs.withdraw_sql)
        updated = await self.connection.execute(cast("Any", statement), parameters | self._notify_parameters(after.id))
        row = await updated.fetchone()
        if row is None:
            raise StaleChange(before.id)
        pk = row[0]
        if change.leaves_state:
            await self.execute("delete_steps", {"pk": pk})
            await self.execute("delete_answered_inputs", {"pk": pk})
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

    async def _write_inputs(self, pk: int, change: Change) -> None:
        for question in change.inputs:
            if question.answered_at is not None:
                answer = (question.answer, shared.to_micros(question.answered_at), pk, question.key)
                await self.execute("answer_input", answer)
                continue
            asked_at = shared.to_micros(question.asked_at)
            values = (pk, question.key, str(question.kind), question.request, asked_at, question.attempt)
            duplicate = partial(AlreadyRecorded.input_request, change.before.id, question.key)
            await self._insert_once(QUERIES["insert_input"], values, duplicate)

    async def _insert_once(
        self, statement: str, parameters: Parameters, duplicate: Callable[[], AlreadyRecorded]
    ) -> AsyncCursor[rows.Row]:
        try:
            return await self.connection.execute(cast("Any", statement), parameters)
        except UniqueViolation as error:
            if error.diag.constraint_name == "tasks_by_key":
                # Another create with the same key committed first. A retry finds its task.
                raise
            raise duplicate() from error

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
            found = await _task_with_key(tables, self._creation, self._now)
            if found is not None:
                return found
        try:
            return await self._insert(tables)
        except (AlreadyRecorded, QuotaExceeded) as error:
            if self._tries == 1:
                raise
            # Perhaps it was stored before, and only the reply was lost. Then it may exceed the quota by itself.
            try:
                stored = await reads.load(tables.connection, new.id, Scope.for_namespace(new.namespace), self._now)
            except TaskNotFound:
                raise error from None
            tables.touched.append(new.id)
            return stored

    async def _insert(self, tables: PostgresTables) -> Task:
        creation, claim = self._creation, self._claim
        start = None if claim is None else next(iter(claim.decide_claims([creation.task], self._now)), None)
        if claim is None or start is None:
            await tables.insert(creation, self._quota, self._now)
            return creation.task
        is_started = await tables.insert_started(creation, start, claim, self._quota, self._now)
        return start.after if is_started else creation.task


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
    parameters = reads.tools_parameters(request.namespace, request.tools) | {
        "now": shared.to_micros(now),
        "limit": request.limit,
        "due_limit": DUE_LIMIT,
    }
    if request.job_tool is None and not request.withdraw_job:
        for change in request.decide_wakeups(await tables.tasks("due_tasks", parameters), now):
            await tables.write(change)
    found = await tables.fetch("queued_tasks", parameters)
    queued = list(map(shared.task_from_row, found))
    if not queued and request.job_tool is not None:
        queued = await _find_task_of_job(tables, request, request.job_tool, now)
    started = request.decide_claims(queued, now)
    for change in started:
        is_other_tool = request.job_tool not in (None, change.after.tool)
        await tables.write(change, withdraw_job=is_other_tool or request.withdraw_job)
        if is_other_tool:
            await _requeue_job(tables, request)
    if request.journals is not None:
        collect_journals(request.journals, [change.after for change in started], found)
    return tuple(change.after for change in started)


async def _find_task_of_job(tables: PostgresTables, request: ClaimRequest, tool: Tool, now: datetime) -> list[Task]:
    """Return the task a job was queued for, if the queue does not show it. No other worker will come for it.

    It may be parked until a past time. Or another transaction has locked it and will leave it in the queue: for
    example, one in which a child ends and signals its parent.
    """
    parameters = reads.tools_parameters(request.namespace, frozenset({tool})) | {"limit": 1, "due_limit": 1}
    for change in request.decide_wakeups(
        await tables.tasks("due_tasks", parameters | {"now": shared.to_micros(now)}), now
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
    parameters = reads.tools_parameters(request.namespace, frozenset({request.job_tool})) | {"limit": 1}
    for task in await tables.tasks("waiting_tasks", parameters):
        await tables.enqueue_job(task)


async def wake_due(tables: PostgresTables, now: datetime) -> None:
    """Move parked tasks that are due to the queue."""
    for task in await tables.tasks("due_of_all", {"now": shared.to_micros(now), "due_limit": DUE_LIMIT}):
        change = decide(task, Due(), now)
        if change is not None:
            await tables.write(change)


async def extend_leases(tables: PostgresTables, held: Sequence[HeldAttempt], until: datetime) -> frozenset[TaskId]:
    parameters = {
        "ids": [attempt.task_id for attempt in held],
        "fences": [attempt.fence for attempt in held],
        "until": shared.to_micros(until),
    }
    extended = {task_id for (task_id,) in await tables.fetch("extend_leases", parameters)}
    return frozenset(attempt.task_id for attempt in held if attempt.task_id not in extended)


async def release_key(tables: PostgresTables, task_id: TaskId, key: str) -> None:
    await tables.execute("release_key", {"id": rows.sanitize_text(task_id), "key": rows.sanitize_text(key)})


async def prune(tables: PostgresTables, now: datetime, limit: int, only: Sequence[TaskId] | None) -> tuple[TaskId, ...]:
    if only is None:
        pruned = await tables.fetch("prune_tasks", {"now": shared.to_micros(now), "limit": clamp_limit(limit)})
    else:
        named = list(dict.fromkeys(map(rows.sanitize_text, only)))
        pruned = await tables.fetch("prune_named", {"only": named, "limit": clamp_limit(limit)})
    ids = tuple(TaskId(row[0]) for row in pruned)
    await tables.notify(ids)
    return ids


async def create_secret(tables: PostgresTables, name: str) -> bytes:
    await tables.execute("insert_secret", {"name": name, "bytes": generate_secret()})
    # Another handle may have created it first.
    found = await reads.find_secret(tables.connection, name)
    assert found is not None  # noqa: S101 - it was inserted, or existed
    return found


async def save_definitions(
    tables: PostgresTables, namespace: str, definitions: Mapping[Tool, bytes]
) -> dict[Tool, bytes]:
    check_definitions(namespace, definitions)
    for tool, body in definitions.items():
        parameters = {"namespace": namespace, "tool": tool.name, "tool_version": tool.version, "body": body}
        await tables.execute("put_definition", parameters)
    found = await tables.fetch("needed_definitions", {"namespace": namespace})
    return {Tool(name, version): body for name, version, body in found}


async def merge_durations(
    tables: PostgresTables, namespace: str, durations: Mapping[str, DurationHistogram]
) -> dict[str, DurationHistogram]:
    await tables.execute("lock_durations", {"namespace": namespace})
    stored = await reads.durations(tables.connection, namespace)
    changed = merge_histograms(stored, durations)
    for tool, histogram in changed.items():
        await tables.execute("put_durations", {"namespace": namespace, "tool": tool, "counts": histogram.dump()})
    return stored | changed


async def _task_with_key(tables: PostgresTables, creation: Creation, now: datetime) -> Task | None:
    new = creation.task
    parameters = {"namespace": new.namespace, "owner": new.owner.key, "key": new.idempotency_key}
    row = await (await tables.execute("task_with_key", parameters)).fetchone()
    if row is None:
        return None
    task = shared.task_from_row(row)
    if creation.matches(task, shared.digest_of(row), now):
        return task
    # It has expired and will be pruned later; its key has been free since it expired.
    await tables.execute("delete_task", {"id": task.id})
    return None
