"""Where a process is in its workflow, and why it can't be cancelled: what both generations say beside their words.

Neither has a word for states. The name is in the status message, for people, and in `_meta`, for programs.
"""

from collections.abc import Mapping

from raincheck.core.payload import Json
from raincheck.core.records import Task
from raincheck.errors import CancelRefused

STATE = "raincheck/state"
"""In the `_meta` of whatever tells of a process: the name of its state."""

REFUSED = "raincheck/cancel-refused"
"""In the `_meta` of an acknowledged cancel that came to nothing: `reason` for programs, `message` for people."""


def state_meta(task: Task) -> dict[str, Json]:
    """The state of a process, for `_meta`; nothing for other tasks."""
    return {} if task.state is None else {STATE: task.state.name}


def refusal(error: CancelRefused) -> Mapping[str, Json]:
    """Why a process goes on."""
    return {"reason": error.reason, "message": str(error)}
