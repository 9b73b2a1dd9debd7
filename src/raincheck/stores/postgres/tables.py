"""What new tasks and changes become in the tables, inside of a transaction."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, TypeAlias, cast

from psycopg import AsyncConnection, AsyncCursor
from psycopg.errors import UniqueViolation

from raincheck.core.change import Change, Creation
from raincheck.core.family import LiveChildren, Parent, advance, follow
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Quota
from raincheck.core.records import Task, TaskId
from raincheck.errors import AlreadyRecorded, StaleChange
from raincheck.stores import rows as shared
from raincheck.stores.dispatch import Jobs
from raincheck.stores.postgres import reads, rows
from raincheck.stores.postgres.news import tell
from raincheck.stores.postgres.queries import QUERIES
from raincheck.stores.requests import ClaimRequest

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
