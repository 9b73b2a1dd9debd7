"""What a task may bring into the world: children while it works, successors when it completes."""

from collections.abc import Sequence

from raincheck.core.change import Creation
from raincheck.core.records import Task, TaskId
from raincheck.errors import InvalidValue


def check_children(task: Task, spawned: Sequence[Creation]) -> None:
    """Refuse what a working task can't spawn.

    Raises:
        InvalidValue: it is somebody else's, or has a key under which it might exist already.
    """
    for creation in spawned:
        _check(task, creation, parents=(None, task.id))


def check_successors(task: Task, spawned: Sequence[Creation]) -> None:
    """Refuse what can't begin with a task's completion.

    Raises:
        InvalidValue: as for children, and if it is one: its parent would have ended before it began.
    """
    for creation in spawned:
        _check(task, creation, parents=(None,))


def spawning_words(spawned: Sequence[Creation]) -> list[str]:
    """What the history says of it."""
    return [f"spawned {creation.task.id}" for creation in spawned]


def _check(task: Task, creation: Creation, parents: tuple[TaskId | None, ...]) -> None:
    new = creation.task
    if (new.namespace, new.owner) != (task.namespace, task.owner):
        raise InvalidValue(f"task {new.id!r} can't be spawned by {task.id!r}: give it the same namespace and owner")
    if new.parent_id not in parents:
        kin = "it or nobody" if task.id in parents else "nobody, since it ends"
        raise InvalidValue(f"task {new.id!r} can't be spawned by {task.id!r}: its parent must be {kin}")
    if new.idempotency_key is not None:
        raise InvalidValue(f"task {new.id!r} is spawned, and once only: it takes no idempotency key")
