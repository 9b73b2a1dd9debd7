"""Calls that are made again. A host that gave up on a call, and makes the same one again, is joined to its task.

Only where the author says that doing it twice is no more than doing it once: then the key is made of the arguments. It
is free again as soon as somebody has the result, so that whoever asks later has it done anew.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from raincheck.core.create import digest_request
from raincheck.core.lifecycle import Phase
from raincheck.core.payload import Json
from raincheck.core.records import Task

SAME = "the same call as "
"""Begins the keys that are made of arguments."""

JOINED_WITHIN = timedelta(minutes=10)
"""For how long after its end a task whose result nobody has had is what the same call gets."""


def key_of(tool: str, arguments: Mapping[str, Json]) -> str:
    """What tells a call from others of the same owner, where only its arguments do."""
    return SAME + digest_request(tool, arguments)


def theirs(key: str) -> str:
    """A caller's own key, which is never taken for one of these."""
    return f"a caller's: {key}" if key.startswith(SAME) else key


def is_joined_by_arguments(task: Task) -> bool:
    return task.idempotency_key is not None and task.idempotency_key.startswith(SAME)


def is_of_no_use(task: Task, now: datetime) -> bool:
    """Whether a call that is made now wants nothing of the task that the same call began before."""
    if task.finished_at is None or not is_joined_by_arguments(task):
        return False
    return task.phase is Phase.CANCELLED or now - task.finished_at > JOINED_WITHIN
