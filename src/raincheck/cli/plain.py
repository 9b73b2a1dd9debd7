"""What others wrote, with nothing in it that a terminal would obey, and that a shell would."""

import json
import re
import shlex
from typing import Any

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
