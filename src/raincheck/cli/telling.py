"""How tasks are told of on a terminal: short, in one line, and with nothing in it that a terminal would obey."""

from datetime import datetime

from rich.console import Console
from rich.text import Text

from raincheck.cli.plain import printable
from raincheck.core.lifecycle import Status
from raincheck.core.owner import Owner, OwnerKind
from raincheck.core.records import Task, Tool
from raincheck.wire.spoken import clipped, in_words

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


def told_owner(owner: Owner) -> str:
    """An owner as it is in the records."""
    return printable(" ".join([owner.kind, *owner.names]))


def told_who(owner: Owner) -> str:
    """An owner in a word: a subject or a client's id, else the kind. The issuer does not fit into a table."""
    match owner.kind:
        case OwnerKind.TOKEN:
            return printable(owner.names[-1])
        case OwnerKind.CLIENT:
            return printable(owner.names[0])
        case _:
            return str(owner.kind)


def told_tool(tool: Tool) -> str:
    """A tool, with its version where that is not the first."""
    return printable(tool.name if tool.version == "1" else f"{tool.name} (version {tool.version})")


def told_status(task: Task) -> Text:
    """The status, and while the task lives the phase."""
    return _styled(task, str(task.status) if task.is_terminal else f"{task.status} ({task.phase})")


def told_phase(task: Task) -> Text:
    """The phase, unless somebody has to answer: then it matters more that they do."""
    return _styled(task, task.status if task.status is Status.INPUT_REQUIRED else task.phase)


def _styled(task: Task, word: str) -> Text:
    return Text(word, TOOL_ERROR if task.is_error else STYLES[task.status])


def told_state(task: Task, longest: int = 120) -> str:
    """How far it is, and what it says of itself."""
    said: list[str] = []
    if task.progress is not None and not task.is_terminal:
        total = task.progress.total
        said.append(f"{task.progress.done:g}" + ("" if total is None else f" of {total:g}"))
    if task.pausing:
        said.append("to be paused")
    if task.is_error:
        said.append("ended with an error")
    if task.status_message and task.status_message != task.phase:
        said.append(task.status_message)
    return printable(clipped(", ".join(said), longest))


def told_age(moment: datetime, now: datetime) -> str:
    """How long ago something was, or how long it still takes."""
    seconds = (now - moment).total_seconds()
    return f"{in_words(seconds)} ago" if seconds >= 0 else f"in {in_words(-seconds)}"


def told_moment(moment: datetime, now: datetime) -> str:
    """A moment, and how long ago it was."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC, {told_age(moment, now)}"
