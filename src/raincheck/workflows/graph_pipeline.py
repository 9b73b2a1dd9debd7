"""A pipeline as a graph: its steps, what each does and when, and which begins after which."""

from collections.abc import Iterator
from typing import Any, cast

from raincheck.workflows.action_model import ActionModel, HttpModel, RunModel
from raincheck.workflows.graph_model import Edge, Graph, Look, Node, clip, span
from raincheck.workflows.pipeline import Pipeline
from raincheck.workflows.pipeline_model import StepModel

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
    return Node(step.id, LOOKS.get(step.kind, Look.WORK), tuple(map(clip, _lines(step))), is_start=is_start)


def _lines(step: StepModel) -> Iterator[str]:
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
