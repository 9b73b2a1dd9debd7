"""Finding the task that somebody means by an id, or by the beginning of one."""

import difflib
import re
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta

from raincheck.cli.plain import printable, told_id
from raincheck.core.owner import Scope
from raincheck.core.records import Task, TaskId
from raincheck.errors import TaskError, TaskNotFound
from raincheck.stores.interface import Store
from raincheck.stores.requests import PAGE_LIMIT, Position, TaskQuery

EVERYTHING = Scope.everything()

TIME_DIGITS = 12
"""So many hexadecimal digits of an id are the milliseconds of its creation, see `clock.new_task_id`."""

MOST_NAMED = 5

MILLISECOND = timedelta(milliseconds=1)


class NoSuchTask(TaskError):
    """An id that means no task, or more than one."""


async def find_task(store: Store, given: str, *, now: datetime) -> Task:
    """The task whose id this is, or begins with this.

    Raises:
        NoSuchTask: there is none, or there are several.
    """
    # Logs shorten an id like that.
    start = given.strip().removesuffix("...").removesuffix("…")
    try:
        return await store.load(TaskId(start), EVERYTHING, now=now)
    except TaskNotFound:
        pass
    found = [task async for task in _beginning_with(store, start, now)] if start else []
    if len(found) == 1:
        return found[0]
    if found:
        named = ", ".join(told_id(task.id) for task in found[:MOST_NAMED])
        more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
        raise NoSuchTask(given, f"{len(found)} ids begin with {printable(given)!r} ({named}{more}): write more of it")
    raise NoSuchTask(given, f"there is no task {printable(given)!r}: {await _what_to_do(store, start, now)}")


async def _beginning_with(store: Store, start: str, now: datetime) -> AsyncGenerator[Task]:
    moment = _time_in(start)
    if moment is not None:
        # Nearly every id tells when its task was created, so the others need not be read.
        found = [task async for task in _all(store, now, before=moment + MILLISECOND, since=moment)]
        same = [task for task in found if task.id.startswith(start)]
        if same:
            for task in same:
                yield task
            return
    async for task in _all(store, now):
        if task.id.startswith(start):
            yield task


async def _all(
    store: Store, now: datetime, *, before: datetime | None = None, since: datetime | None = None
) -> AsyncGenerator[Task]:
    """All tasks, or those that were created between two moments."""
    after = None if before is None else Position(before, TaskId(""))
    while True:
        page = await store.list_tasks(TaskQuery(EVERYTHING), now=now, after=after, limit=PAGE_LIMIT)
        for task in page.tasks:
            if since is not None and task.created_at < since:
                return
            yield task
        after = page.next
        if after is None:
            return


def _time_in(start: str) -> datetime | None:
    if not re.fullmatch(rf"[0-9a-f]{{{TIME_DIGITS},}}", start):
        return None
    try:
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=int(start[:TIME_DIGITS], 16))
    except OverflowError:
        return None


async def _what_to_do(store: Store, start: str, now: datetime) -> str:
    """Tasks that have a similar id, of the latest ones."""
    page = await store.list_tasks(TaskQuery(EVERYTHING), now=now, limit=PAGE_LIMIT)
    ids = {task.id[: max(len(start), 1)]: task.id for task in reversed(page.tasks)}
    near = difflib.get_close_matches(start, ids, n=1)
    if near:
        return f"did you mean {told_id(ids[near[0]])}?"
    return "tasks ls shows those that there are in this store" if page.tasks else "this store has none at all"
