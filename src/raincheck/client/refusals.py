"""Why a server does not cancel a task: a process of a workflow is cancelled where its workflow says so."""

import re
from typing import Any

from raincheck.errors import CancelRefused
from raincheck.wire.states import REFUSED
from raincheck.wire.words import as_object

ENDED = "already-completed"
"""The reason where there is nothing left to cancel."""

SPOKEN = re.compile(r"can't be cancelled \(([\w-]+)\): (.*?)(?:\. It goes on\.)?$", re.DOTALL)
"""The reason, and why, in the words of a server."""


def check_acknowledged(task_id: str, meta: dict[str, Any] | None) -> None:
    """See whether a cancel that was acknowledged came to nothing.

    Raises:
        CancelRefused: it did, and the task goes on.
    """
    refused = read_refusal(task_id, (meta or {}).get(REFUSED))
    if refused is not None and refused.reason != ENDED:
        raise refused


def check_spoken(task_id: str, text: str) -> None:
    """See whether a server says in words that it does not cancel a task.

    Raises:
        CancelRefused: it does, and the task goes on.
    """
    found = SPOKEN.search(text)
    if found is not None:
        raise CancelRefused(task_id, found[1], found[2])


def read_refusal(task_id: str, said: Any) -> CancelRefused | None:  # noqa: ANN401 - whatever a server says
    """What a server says for programs; None if it is something else."""
    reason, message = (as_object(said).get(name) for name in ("reason", "message"))
    if not isinstance(reason, str) or not isinstance(message, str):
        return None
    found = SPOKEN.search(message)
    return CancelRefused(task_id, reason, message if found is None else found[2])
