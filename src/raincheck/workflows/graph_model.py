"""What is drawn of a workflow: boxes with words in them, and arrows between them."""

from dataclasses import dataclass
from enum import StrEnum

LONGEST_LINE = 40
"""Characters of one line in a box, or at an arrow. The whole of it is in the file."""


class Look(StrEnum):
    """What a box stands for. Each looks a little different."""

    WORK = "work"
    """A step that does something here: a command, a function, values."""
    REACH = "reach"
    """One that asks another program: HTTP, a tool of another server, another workflow."""
    ASK = "ask"
    """One that asks a person, or a model."""
    WAIT = "wait"
    """One that waits."""
    STATE = "state"
    """A state that something can be done in."""
    SUCCESS = "success"
    """The end, with a result."""
    FAILURE = "failure"
    """The end, with an error."""
    CANCEL = "cancel"
    """The end, since somebody wanted it so."""


@dataclass(frozen=True, slots=True)
class Node:
    """A step or a state."""

    name: str
    """Unique in its graph."""
    look: Look
    lines: tuple[str, ...] = ()
    """What it does and when, below its name."""
    is_start: bool = False


@dataclass(frozen=True, slots=True)
class Edge:
    """What leads from one to the other."""

    source: str
    target: str
    label: str = ""
    is_exception: bool = False
    """What happens only if something goes wrong, or takes too long."""


@dataclass(frozen=True, slots=True)
class Graph:
    """A workflow to be drawn."""

    name: str
    description: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def span(seconds: float) -> str:
    """A duration as files write it."""
    units = (("d", 86_400), ("h", 3_600), ("m", 60))
    return next(
        (f"{seconds / size:g}{unit}" for unit, size in units if seconds and not seconds % size), f"{seconds:g}s"
    )


def clip(text: str, longest: int = LONGEST_LINE) -> str:
    """In one line, and not too long."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"
