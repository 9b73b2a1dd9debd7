"""Format records for terminals and shells, with untrusted text escaped."""

import json
import re
import shlex
from datetime import datetime
from typing import Any

from raincheck.core.owner import Owner, OwnerKind
from raincheck.core.records import Task, Tool
from raincheck.wire.fallback_text import clip_text, format_duration

LINE_BREAKS = "\n\t"

SHORT_ID_LENGTH = 20
"""The characters of an id that are shown where space is short: its time, and enough random digits to distinguish it."""

TASK_ID_PATTERN = re.compile("(?!000)[0-9a-f]{44}")
"""The ids that raincheck creates. Ids of another form may share a prefix, so they are shown in full."""


def printable(text: str) -> str:
    """Return the text as one line. Invisible characters, and those that would move the cursor, are escaped."""
    return printable_lines(" ".join(text.split()))


def printable_lines(text: str) -> str:
    """Escape the text like `printable`, but keep its lines."""
    return "".join(
        character if character.isprintable() or character in LINE_BREAKS else _escaped(character) for character in text
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()


def format_json(value: Any, *, indent: int | None = 2) -> str:  # noqa: ANN401 - any JSON
    """Format a value as JSON, and escape the same characters as `printable` does. Without an indent it is one line."""
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=False)
    return "".join(
        character if character.isprintable() or character == "\n" else json.dumps(character)[1:-1] for character in text
    )


def format_id(task_id: str) -> str:
    """Return enough of an id to find its task."""
    return printable(task_id[:SHORT_ID_LENGTH] if TASK_ID_PATTERN.fullmatch(task_id) else task_id)


def format_command(command: str, task_id: str, *options: str) -> str:
    """Return a command about a task, quoted for a shell."""
    name = task_id[:SHORT_ID_LENGTH] if TASK_ID_PATTERN.fullmatch(task_id) else _typeable(task_id)
    end = ["--"] if name.startswith("-") else []
    return f"raincheck {command} {shlex.join([*options, *end, name])}"


def _typeable(task_id: str) -> str:
    """Return an id up to its first character that can't be typed. A prefix is enough to find most tasks."""
    return task_id if task_id.isprintable() else re.split(r"[^ -~]", task_id, maxsplit=1)[0]


def format_owner(owner: Owner) -> str:
    """Format an owner with its kind and all of its names."""
    return printable(" ".join([owner.kind, *owner.names]))


def format_owner_name(owner: Owner) -> str:
    """Format an owner briefly: a subject or a client's id, else the kind. The issuer does not fit into a table."""
    match owner.kind:
        case OwnerKind.TOKEN:
            return printable(owner.names[-1])
        case OwnerKind.CLIENT:
            return printable(owner.names[0])
        case _:
            return str(owner.kind)


def format_tool(tool: Tool) -> str:
    """Format a tool, with its version if it is not the default."""
    return printable(tool.name if tool.version == "1" else f"{tool.name} (version {tool.version})")


def format_task_progress(task: Task, max_length: int = 120) -> str:
    """Format a task's progress and status message."""
    parts: list[str] = []
    if task.progress is not None and not task.is_terminal:
        total = task.progress.total
        parts.append(f"{task.progress.done:g}" + ("" if total is None else f" of {total:g}"))
    if task.pausing:
        parts.append("to be paused")
    if task.is_error:
        parts.append("ended with an error")
    if task.status_message and task.status_message != task.phase:
        parts.append(task.status_message)
    return printable(clip_text(", ".join(parts), max_length))


def format_age(moment: datetime, now: datetime) -> str:
    """Format the time since a moment, or until it."""
    seconds = (now - moment).total_seconds()
    return f"{format_duration(seconds)} ago" if seconds >= 0 else f"in {format_duration(-seconds)}"


def format_moment(moment: datetime, now: datetime) -> str:
    """Format a moment, and the time since or until it."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC, {format_age(moment, now)}"
