"""A state machine as a graph: its states, what is done in them, and what leads from one to the next."""

from collections.abc import Iterator

from raincheck.workflows.graph_model import Edge, Graph, Look, Node, clip, span
from raincheck.workflows.machine import Machine, State, Transition

ENDS = {"success": Look.SUCCESS, "failure": Look.FAILURE, "cancel": Look.CANCEL}


def graph_of_machine(machine: Machine) -> Graph:
    """What there is to draw."""
    nodes = tuple(
        Node(state.name, _look(state), tuple(_lines(state)), is_start=state.name == machine.initial)
        for state in machine.states
    )
    edges = tuple(_edge(state, one) for state in machine.states for one in state.transitions)
    return Graph(machine.name, machine.description or "", nodes, edges)


def _look(state: State) -> Look:
    return Look.STATE if state.kind is None else ENDS[state.kind]


def _lines(state: State) -> Iterator[str]:
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
