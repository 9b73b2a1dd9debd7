"""What is done inside a transaction that writes."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from raincheck.core.change import Change, Creation
from raincheck.core.commands import Due
from raincheck.core.decide import decide
from raincheck.core.durations import Sketch, merge_news
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Quota
from raincheck.core.owner import Scope
from raincheck.core.records import Task, TaskId, Tool
from raincheck.errors import AlreadyRecorded, QuotaExceeded, TaskNotFound
from raincheck.stores import rows as shared
from raincheck.stores.checks import check_definitions, check_named_once, new_secret
from raincheck.stores.journals import note_journals
from raincheck.stores.postgres import reads, rows
from raincheck.stores.postgres.tables import Tables
from raincheck.stores.requests import DUE_LIMIT, ClaimRequest, HeldAttempt, page_size


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
