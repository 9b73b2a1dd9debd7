"""Log each important event of a task as one line, with its owner and without the task's content.

The lines go to the logger `raincheck.audit`. Each has the event in its message, and again in fields (`record.audit`)
for operators that write logs as JSON.
"""

import json
import logging
import re

from raincheck.core.change import Change, Creation
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner, Scope
from raincheck.core.records import Task, shorten_id
from raincheck.errors import StoreError
from raincheck.stores.base import Store, iterate_tasks
from raincheck.stores.requests import TaskQuery

MAX_VALUE_LENGTH = 2_200
"""Characters: as long as an owner's key may be."""

UNQUOTED_VALUE = re.compile(r"[\w.:/@+-]+", re.ASCII)

REFUSED = "refused"

log = logging.getLogger("raincheck.audit")
logger = logging.getLogger(__name__)


def log_event(
    event: str, owner: Owner, *, task_id: str | None = None, tool: str | None = None, **facts: object
) -> None:
    """Write a line, if the logger is enabled."""
    if not log.isEnabledFor(logging.INFO):
        return
    if task_id is not None and (event == REFUSED or not owner.may_list):
        # The id of an anonymous task is the right to the task, and the owner of a refused one is unknown. The line has
        # enough of the id to find the task again, and not enough to use it.
        task_id = shorten_id(task_id)
    fields = {"event": event, "owner": owner.key, "task": task_id, "tool": tool, **facts}
    present = {name: _clipped(value) for name, value in fields.items() if value is not None}
    text = " ".join(f"{name}={_quoted(value)}" for name, value in present.items() if name != "event")
    log.info("%s %s", event, text, extra={"audit": present})


def _clipped(value: object) -> object:
    return f"{value[:MAX_VALUE_LENGTH]}..." if isinstance(value, str) and len(value) > MAX_VALUE_LENGTH else value


def _quoted(value: object) -> str:
    """Quote a value for a line. Callers choose some values, and must not be able to split the line or add one."""
    text = str(value)
    return text if UNQUOTED_VALUE.fullmatch(text) else json.dumps(text)


def _log_task(event: str, task: Task, **facts: object) -> None:
    log_event(event, task.owner, task_id=task.id, tool=task.tool.name, **facts)


class AuditLog:
    """Observer of an engine that logs the start and end of each task once, in the process that wrote it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def on_create(self, creation: Creation, task: Task) -> None:
        _log_task("created" if task.id == creation.task.id else "joined", task)

    async def on_commit(self, change: Change) -> None:
        for creation in change.spawned:
            _log_task("created", creation.task, parent=change.after.id)
        if change.after.is_terminal and not change.before.is_terminal and log.isEnabledFor(logging.INFO):
            await self._log_end(change.after)

    async def _log_end(self, task: Task) -> None:
        _log_task("ended", task, how=str(task.phase), is_error=task.is_error or None)
        if task.phase is Phase.COMPLETED:
            return
        # The children were cancelled with their parent, in its transaction.
        query = TaskQuery(Scope.for_namespace(task.namespace), parent_id=task.id, phases=frozenset({Phase.CANCELLED}))
        try:
            children = [child async for child in iterate_tasks(self._store, query, now=task.updated_at)]
        except StoreError as error:
            # The change is committed, whether or not all of it can be logged.
            logger.warning("could not list the children that were cancelled with task %s: %s", task.log_id, error)
            return
        for child in children:
            # A child that was updated after its parent ends a little later. A child that was cancelled before ended
            # before.
            if child.finished_at is not None and child.finished_at >= (task.finished_at or task.updated_at):
                await self._log_end(child)
