"""Tasks in a few words, for a model or a person to read."""

from datetime import datetime

from raincheck.core.lifecycle import Phase
from raincheck.core.records import Task

LONGEST_TEXT = 240
"""Characters of what somebody else says, in a text that has more to say."""

WORDS = {
    Phase.QUEUED: "is waiting for its turn",
    Phase.PAUSED: "is held back by the operator",
    Phase.COMPLETED: "has completed",
    Phase.FAILED: "has failed",
    Phase.CANCELLED: "was cancelled",
}
"""How a task is, in a phase; else it is still running."""


def described(task: Task, longest: int = LONGEST_TEXT) -> str:
    """A task in a few words, such as "build_report is still running: 3 of 12, crunching"."""
    how = WORDS.get(task.phase, "is still running")
    if task.open_inputs or task.is_error:
        how = "ended with an error" if task.is_error else "waits for an answer"
    far = [] if task.progress is None or task.is_terminal else [_amount(task)]
    said = [] if not task.status_message else [clipped(task.status_message, longest)]
    # Where nobody gave a reason, it only says again what the phase says.
    more = ", ".join(one for one in dict.fromkeys(far + said) if one != task.phase)
    return f"{task.tool.name} {how}{': ' if more else ''}{more}".rstrip(".")


def in_words(seconds: float) -> str:
    """A duration that is easy to read, such as "45 s", "3 min" or "2 h"."""
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{round(seconds / size)} {unit}"
    if seconds >= 10:
        return f"{seconds:.0f} s"
    return f"{seconds:.2g} s" if seconds >= 1 else f"{max(seconds, 0.0) * 1_000:.0f} ms"


def ago(task: Task, now: datetime) -> str:
    """How long ago a task began."""
    return f"{in_words((now - task.created_at).total_seconds())} ago"


def squeezed(text: str, longest: int = LONGEST_TEXT) -> str:
    """Both ends of a text that is too long: what is wrong with a long value is said before or after it."""
    return text if len(text) <= 2 * longest else f"{text[:longest]} … {text[-longest:]}"


def clipped(text: str, longest: int = LONGEST_TEXT) -> str:
    """The beginning of a text that is too long to be read to a model."""
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _amount(task: Task) -> str:
    assert task.progress is not None  # noqa: S101 - seen before
    total = task.progress.total
    return f"{task.progress.done:g} done" if total is None else f"{task.progress.done:g} of {total:g}"
