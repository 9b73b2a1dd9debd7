"""What handles tell each other over `LISTEN` and `NOTIFY`: who changed something, and the ids of the tasks."""

from collections.abc import Iterable, Iterator

from raincheck.core.records import TaskId
from raincheck.stores.feed import ANYTHING, Hint

LIMIT = 7_900
"""Bytes of one message. PostgreSQL takes fewer than 8,000."""

SEPARATOR = "\n"
"""Ids that raincheck makes have none. Those of a program of its own might, and are then not named."""


def tell(origin: str, task_ids: Iterable[TaskId]) -> Iterator[str]:
    """The messages that tell of these tasks."""
    message = origin
    size = len(origin)
    for task_id in task_ids:
        length = len(task_id.encode()) + 1
        if SEPARATOR in task_id or len(origin) + length > LIMIT:
            # Without names: anything may have changed.
            yield origin
            continue
        if size + length > LIMIT:
            yield message
            message, size = origin, len(origin)
        message, size = f"{message}{SEPARATOR}{task_id}", size + length
    if size > len(origin):
        yield message


def hear(message: str) -> tuple[str, Hint]:
    """Who told, and of what."""
    origin, *ids = message.split(SEPARATOR)
    return origin, frozenset(map(TaskId, ids)) or ANYTHING
