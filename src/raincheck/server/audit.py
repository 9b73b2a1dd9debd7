"""One line for everything that matters about a task and its owner, and nothing of what is in it.

The lines go to the logger `raincheck.audit`. Each says what happened in its message, and has it once more in fields
(`record.audit`), for whoever writes logs as JSON.
"""

import json
import logging
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from raincheck.core.change import Change, Creation
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Quota
from raincheck.core.owner import Owner, Scope
from raincheck.core.records import Task, shorten_id
from raincheck.errors import StoreError
from raincheck.stores.base import Store
from raincheck.stores.requests import PAGE_LIMIT, ClaimRequest, Page, TaskQuery

LONGEST_WORD = 2_200
"""Characters: as long as an owner's key may be."""

PLAIN = re.compile(r"[\w.:/@+-]+", re.ASCII)

REFUSED = "refused"

log = logging.getLogger("raincheck.audit")
logger = logging.getLogger(__name__)


def note(event: str, owner: Owner, *, task_id: str | None = None, tool: str | None = None, **facts: object) -> None:
    """Write a line, if anybody reads it."""
    if not log.isEnabledFor(logging.INFO):
        return
    if task_id is not None and (event == REFUSED or not owner.may_list):
        # Whoever has the id of an anonymous task has the right to it, and whose a refused one is, is not known. Enough
        # of it to find it again, not to use it.
        task_id = shorten_id(task_id)
    fields = {"event": event, "owner": owner.key, "task": task_id, "tool": tool, **facts}
    told = {name: _clipped(value) for name, value in fields.items() if value is not None}
    words = " ".join(f"{name}={_word(value)}" for name, value in told.items() if name != "event")
    log.info("%s %s", event, words, extra={"audit": told})


def _clipped(value: object) -> object:
    return f"{value[:LONGEST_WORD]}..." if isinstance(value, str) and len(value) > LONGEST_WORD else value


def _word(value: object) -> str:
    """A word of a line. Callers choose some of them, and must not make two of it, or a line of their own."""
    text = str(value)
    return text if PLAIN.fullmatch(text) else json.dumps(text)


def _note_task(event: str, task: Task, **facts: object) -> None:
    note(event, task.owner, task_id=task.id, tool=task.tool.name, **facts)


class _AuditedStore:
    """A store whose tasks' beginnings and ends are noted by the process that wrote them, once."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        # Asked for once: every poll goes through here.
        vars(self)[name] = found = getattr(self._store, name)
        return found

    async def create(
        self, creation: Creation, *, quota: Quota, now: datetime, claim: ClaimRequest | None = None
    ) -> Task:
        task = await self._store.create(creation, quota=quota, now=now, claim=claim)
        _note_task("created" if task.id == creation.task.id else "joined", task)
        return task

    async def commit(self, changes: Sequence[Change]) -> None:
        await self._store.commit(changes)
        for change in changes:
            for creation in change.spawned:
                _note_task("created", creation.task, parent=change.after.id)
            if change.after.is_terminal and not change.before.is_terminal:
                await self._note_end(change.after)

    async def _note_end(self, task: Task) -> None:
        _note_task("ended", task, how=str(task.phase), is_error=task.is_error or None)
        if task.phase is Phase.COMPLETED:
            return
        # Its children were cancelled with it, in its transaction.
        query = TaskQuery(Scope.within(task.namespace), parent_id=task.id, phases=frozenset({Phase.CANCELLED}))
        try:
            children = await self._list(query, task)
        except StoreError as error:
            # What was written is written, whether or not all of it can be told.
            logger.warning("the children that were cancelled with task %s can't be listed: %s", task.shown_id, error)
            return
        for child in children:
            # A child that was changed last ends a little later. One that was cancelled before ended before.
            if child.finished_at is not None and child.finished_at >= (task.finished_at or task.updated_at):
                await self._note_end(child)

    async def _list(self, query: TaskQuery, task: Task) -> list[Task]:
        found: list[Task] = []
        page: Page | None = None
        while page is None or page.next is not None:
            after = None if page is None else page.next
            page = await self._store.list_tasks(query, now=task.updated_at, after=after, limit=PAGE_LIMIT)
            found += page.tasks
        return found


def audited(store: Store) -> Store:
    """The same store, with a line in the audit log for each task that begins or ends through it."""
    return cast("Store", _AuditedStore(store))
