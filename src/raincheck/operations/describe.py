"""What others wrote, with nothing in it that a terminal would obey, and that a shell would."""

import json
import re
import shlex
from datetime import datetime
from typing import Any

from raincheck.core.owner import Owner, OwnerKind
from raincheck.core.records import Task, Tool
from raincheck.wire.fallback_text import clipped, in_words

LINE_BREAKS = "\n\t"

ID_SHOWN = 20
"""How much of an id is shown where there is little room: its time, and enough that is random to tell it from others."""

OUR_ID = re.compile("(?!000)[0-9a-f]{44}")
"""Ids of others may begin alike: those are shown whole."""


def printable(text: str) -> str:
    """In one line. What is not to be seen, or would move the cursor, is spelled out."""
    return harmless(" ".join(text.split()))


def harmless(text: str) -> str:
    """Likewise, with its lines as they are."""
    return "".join(one if one.isprintable() or one in LINE_BREAKS else _spelled(one) for one in text)


def _spelled(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()


def json_of(value: Any, *, indent: int | None = 2) -> str:  # noqa: ANN401 - any JSON
    """As JSON, in which the same is escaped as JSON does. Without an indent it is one line."""
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=False)
    return "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text)


def told_id(task_id: str) -> str:
    """Enough of an id to find its task by."""
    return printable(task_id[:ID_SHOWN] if OUR_ID.fullmatch(task_id) else task_id)


def typed(command: str, task_id: str, *options: str) -> str:
    """A command about a task, to be pasted into a shell."""
    name = task_id[:ID_SHOWN] if OUR_ID.fullmatch(task_id) else _typeable(task_id)
    end = ["--"] if name.startswith("-") else []
    return f"raincheck {command} {shlex.join([*options, *end, name])}"


def _typeable(task_id: str) -> str:
    """An id, up to what can't be typed. Its beginning is enough for most."""
    return task_id if task_id.isprintable() else re.split(r"[^ -~]", task_id, maxsplit=1)[0]


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
