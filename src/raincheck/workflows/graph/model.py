"""A pipeline as a graph: its steps, what each does and when, and which begins after which.

What is drawn of a workflow: boxes with words in them, and arrows between them.

A state machine as a graph: its states, what is done in them, and what leads from one to the next.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from raincheck.workflows.machines.machine import Machine, State, Transition
from raincheck.workflows.parsing.models import ActionModel, HttpModel, RunModel, StepModel
from raincheck.workflows.pipelines.pipeline import Pipeline

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


ENDS = {"success": Look.SUCCESS, "failure": Look.FAILURE, "cancel": Look.CANCEL}


def graph_of_machine(machine: Machine) -> Graph:
    """What there is to draw."""
    nodes = tuple(
        Node(state.name, _look(state), tuple(_state_lines(state)), is_start=state.name == machine.initial)
        for state in machine.states
    )
    edges = tuple(_edge(state, one) for state in machine.states for one in state.transitions)
    return Graph(machine.name, machine.description or "", nodes, edges)


def _look(state: State) -> Look:
    return Look.STATE if state.kind is None else ENDS[state.kind]


def _state_lines(state: State) -> Iterator[str]:
    if state.kind is not None:
        yield state.kind
    if state.action is not None:
        yield clip(state.words or "does something")
    if state.timeout is not None:
        yield clip(f"after {span(state.timeout.after)}: {state.timeout.action}")


def _edge(state: State, transition: Transition) -> Edge:
    reason = " (with a reason)" if transition.requires_reason else ""
    timed = None if state.timeout is None else state.timeout.action
    label = clip(f"{transition.action}{_when(transition)}{reason}")
    return Edge(state.name, transition.to, label, is_exception=transition.action in (state.on_error, timed))


def _when(transition: Transition) -> str:
    """What must hold for it, in brackets; or what of the action's outcome picks it."""
    if isinstance(transition.guard, str):
        return f" [{transition.words or transition.guard}]"
    if transition.guard is not None:
        return f" [{transition.words or 'guarded'}]"
    return f" if {transition.words}" if transition.on is not None and transition.words else ""


LOOKS = {
    "http": Look.REACH,
    "call": Look.REACH,
    "workflow": Look.REACH,
    "ask": Look.ASK,
    "sample": Look.ASK,
    "sleep": Look.WAIT,
}
"""All others work here."""


def graph_of_pipeline(pipeline: Pipeline) -> Graph:
    """What there is to draw."""
    plan, steps = pipeline.plan, pipeline.model.steps
    nodes = tuple(_node(step, is_start=not plan.needs.get(step.id, ("undoes another",))) for step in steps)
    edges = [Edge(before, step) for step, needs in plan.needs.items() for before in needs]
    edges += [Edge(step, undo, "to undo it", is_exception=True) for step, undo in plan.undoes.items()]
    return Graph(pipeline.name, pipeline.description or "", nodes, tuple(edges))


def _node(step: StepModel, *, is_start: bool) -> Node:
    return Node(step.id, LOOKS.get(step.kind, Look.WORK), tuple(map(clip, _step_lines(step))), is_start=is_start)


def _step_lines(step: StepModel) -> Iterator[str]:
    yield told_action(step)
    if step.condition is not None:
        yield f"if {_told(step.condition)}"
    if step.for_each is not None:
        yield f"for each of {_told(step.for_each)}"
    if step.until is not None:
        yield f"until {step.until}, at most {step.max_rounds} rounds"
    if step.retry is not None:
        yield f"up to {step.retry.attempts} tries"
    if step.timeout is not None:
        yield f"within {span(step.timeout)}"
    if step.on_error == "continue":
        yield "goes on if it fails"


def told_action(action: ActionModel) -> str:
    """What a step, or the action of a state, does."""
    return f"{action.kind}: {_told_what(action)}"


def _told_what(action: ActionModel) -> str:
    said: Any = getattr(action, action.kind)
    match action.kind:
        case "run":
            return _told_command(action.run) if action.run is not None else ""
        case "http":
            return _told_request(action.http) if action.http is not None else ""
        case "call":
            return f"{said.tool} of {said.server}"
        case "ask":
            return str(said.message)
        case "sample":
            return str(said.prompt or said.messages[-1].text)
        case "set":
            return ", ".join(cast("dict[str, object]", said)) if isinstance(said, dict) else _told(said)
        case _:
            return str(said)


def _told_command(run: RunModel) -> str:
    return run.shell if run.shell is not None else " ".join(map(str, run.argv or ()))


def _told_request(http: HttpModel) -> str:
    return f"{http.method} {http.url}"


def _told(value: object) -> str:
    return f"{len(cast('list[object]', value))} items" if isinstance(value, list) else str(value)
