"""How tasks are told of on a terminal: short, in one line, and with nothing in it that a terminal would obey."""

from rich.console import Console
from rich.text import Text

from raincheck.core.lifecycle import Status
from raincheck.core.records import Task

STYLES = {
    Status.WORKING: "cyan",
    Status.INPUT_REQUIRED: "yellow",
    Status.COMPLETED: "green",
    Status.FAILED: "bold red",
    Status.CANCELLED: "dim",
}

TOOL_ERROR = "red"

WIDE = 160
"""The width of a table that goes into a file, where there is no screen to fit."""


def make_console(*, is_error: bool = False, wide: int = WIDE) -> Console:
    """Where to print: as wide as the terminal and with colours, or else wide and plain."""
    console = Console(stderr=is_error)
    return console if console.is_terminal else Console(stderr=is_error, width=wide, color_system=None)


def told_status(task: Task) -> Text:
    """The status, and while the task lives the phase."""
    return _styled(task, str(task.status) if task.is_terminal else f"{task.status} ({task.phase})")


def told_phase(task: Task) -> Text:
    """The phase, unless somebody has to answer: then it matters more that they do."""
    return _styled(task, task.status if task.status is Status.INPUT_REQUIRED else task.phase)


def _styled(task: Task, word: str) -> Text:
    return Text(word, TOOL_ERROR if task.is_error else STYLES[task.status])
