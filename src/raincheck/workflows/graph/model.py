"""The graph of a workflow: boxes with text, and edges between them.

A pipeline's graph shows its steps, each with its action and conditions, and the order in which they start. A state
machine's graph shows its states, with their actions, and the transitions between them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

from raincheck.workflows.definition import WorkflowDefinition
from raincheck.workflows.machines.machine import Machine, State, Transition
from raincheck.workflows.parsing.models import (
    ActionModel,
    AskModel,
    CallModel,
    HttpModel,
    RunModel,
    SampleModel,
    StepModel,
)
from raincheck.workflows.pipelines.pipeline import Pipeline

MAX_LINE_LENGTH = 40
"""Characters of one line in a box or at an edge. The file has the full text."""


class NodeKind(StrEnum):
    """The kind of a box. Each kind is drawn differently."""

    WORK = "work"
    """A step that runs locally: a command, a function, values."""
    REACH = "reach"
    """A step that calls another program: HTTP, a tool of another server, another workflow."""
    ASK = "ask"
    """A step that asks a user or a model."""
    WAIT = "wait"
    """A step that waits."""
    STATE = "state"
    """A state that is not terminal."""
    SUCCESS = "success"
    """A terminal state with a result."""
    FAILURE = "failure"
    """A terminal state with an error."""
    CANCEL = "cancel"
    """A terminal state that is reached by cancelling."""


@dataclass(frozen=True, slots=True)
class Node:
    """A step or a state."""

    name: str
    """Unique in its graph."""
    kind: NodeKind
    lines: tuple[str, ...] = ()
    """Its action and conditions, shown below its name."""
    is_start: bool = False


@dataclass(frozen=True, slots=True)
class Edge:
    """A connection from one node to another."""

    source: str
    target: str
    label: str = ""
    is_exception: bool = False
    """Whether it is followed only after an error or a timeout."""


@dataclass(frozen=True, slots=True)
class Graph:
    """A workflow as nodes and edges."""

    name: str
    description: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def format_duration(seconds: float) -> str:
    """Format a duration as files write it."""
    units = (("d", 86_400), ("h", 3_600), ("m", 60))
    return next(
        (f"{seconds / size:g}{unit}" for unit, size in units if seconds and not seconds % size), f"{seconds:g}s"
    )


def clip(text: str, max_length: int = MAX_LINE_LENGTH) -> str:
    """Join a text into one line, and shorten it to `max_length`."""
    line = " ".join(text.split())
    return line if len(line) <= max_length else f"{line[: max_length - 1]}…"


def graph_of(definition: WorkflowDefinition) -> Graph:
    """Return the graph of a workflow."""
    return _pipeline_graph(definition) if isinstance(definition, Pipeline) else _machine_graph(definition)


def _machine_graph(machine: Machine) -> Graph:
    nodes = tuple(
        Node(
            state.name,
            NodeKind(state.kind or "state"),
            tuple(_state_lines(state)),
            is_start=state.name == machine.initial,
        )
        for state in machine.states
    )
    edges = tuple(_edge(state, transition) for state in machine.states for transition in state.transitions)
    return Graph(machine.name, machine.description or "", nodes, edges)


def _state_lines(state: State) -> Iterator[str]:
    if state.kind is not None:
        yield state.kind
    if state.action is not None:
        yield clip(state.label or "runs an action")
    if state.timeout is not None:
        yield clip(f"after {format_duration(state.timeout.after)}: {state.timeout.action}")


def _edge(state: State, transition: Transition) -> Edge:
    reason = " (with a reason)" if transition.requires_reason else ""
    on_timeout = None if state.timeout is None else state.timeout.action
    label = clip(f"{transition.action}{_condition(transition)}{reason}")
    return Edge(state.name, transition.to, label, is_exception=transition.action in (state.on_error, on_timeout))


def _condition(transition: Transition) -> str:
    """Return the guard in brackets, or the condition on the action's outcome that picks the transition."""
    if isinstance(transition.guard, str):
        return f" [{transition.label or transition.guard}]"
    if transition.guard is not None:
        return f" [{transition.label or 'guarded'}]"
    return f" if {transition.label}" if transition.on is not None and transition.label else ""


ACTION_NODE_KINDS = {
    "http": NodeKind.REACH,
    "call": NodeKind.REACH,
    "workflow": NodeKind.REACH,
    "ask": NodeKind.ASK,
    "sample": NodeKind.ASK,
    "sleep": NodeKind.WAIT,
}
"""The other kinds of actions are `WORK`."""


def _pipeline_graph(pipeline: Pipeline) -> Graph:
    plan, steps = pipeline.plan, pipeline.model.steps
    nodes = tuple(_node(step, is_start=not plan.needs.get(step.id, ("undoes another",))) for step in steps)
    edges = [Edge(before, step) for step, needs in plan.needs.items() for before in needs]
    edges += [Edge(step, undo, "to undo it", is_exception=True) for step, undo in plan.compensations.items()]
    return Graph(pipeline.name, pipeline.description or "", nodes, tuple(edges))


def _node(step: StepModel, *, is_start: bool) -> Node:
    return Node(
        step.id, ACTION_NODE_KINDS.get(step.kind, NodeKind.WORK), tuple(map(clip, _step_lines(step))), is_start=is_start
    )


def _step_lines(step: StepModel) -> Iterator[str]:
    yield _describe_action(step)
    if step.condition is not None:
        yield f"if {_describe_value(step.condition)}"
    if step.for_each is not None:
        yield f"for each of {_describe_value(step.for_each)}"
    if step.until is not None:
        yield f"until {step.until}, at most {step.max_rounds} rounds"
    if step.retry is not None:
        yield f"up to {step.retry.attempts} tries"
    if step.timeout is not None:
        yield f"within {format_duration(step.timeout)}"
    if step.on_error == "continue":
        yield "continues if it fails"


def _describe_action(action: ActionModel) -> str:
    return f"{action.kind}: {_describe_options(getattr(action, action.kind))}"


def _describe_options(options: object) -> str:
    match options:
        case RunModel():
            return options.shell if options.shell is not None else " ".join(map(str, options.argv or ()))
        case HttpModel():
            return f"{options.method} {options.url}"
        case CallModel():
            return f"{options.tool} of {options.server}"
        case AskModel():
            return options.message
        case SampleModel():
            return str(options.prompt or (options.messages or [])[-1].text)
        case dict():
            return ", ".join(cast("dict[str, object]", options))
        case _:
            return _describe_value(options)


def _describe_value(value: object) -> str:
    return f"{len(cast('list[object]', value))} items" if isinstance(value, list) else str(value)
