"""What is wrong with a pipeline, beyond what its model sees: all of it, before anything is run."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import TypeAlias

from raincheck.workflows.common_model import RESERVED, WorkflowModel
from raincheck.workflows.expression_checks import Names, check_expression, check_text
from raincheck.workflows.faults import Fault
from raincheck.workflows.pipeline_model import PipelineModel, StepModel
from raincheck.workflows.pipeline_plan import Plan
from raincheck.workflows.schema_checks import check_properties
from raincheck.workflows.source import Source
from raincheck.workflows.step_checks import check_reach
from raincheck.workflows.step_values import texts_in, values_of
from raincheck.workflows.surroundings import Surroundings
from raincheck.workflows.yaml_values import Route

Finding: TypeAlias = tuple[Route, str]
"""Where something is wrong within a pipeline, and what."""

WAITING = frozenset({"ask", "sample", "workflow", "sleep"})
"""Kinds that wait by means of the task. What they are asked must be the same after a restart, so without `env`."""


def find_faults(model: PipelineModel, name: str, source: Source, surroundings: Surroundings) -> list[Fault]:
    """Every fault of a pipeline."""
    plan = Plan.of(model)
    names = Names(frozenset(model.input), frozenset(one.id for one in model.steps), frozenset(), surroundings.env)
    findings = chain(
        check_inputs(model, names.without("steps")),
        _ids(model),
        _order(model, plan),
        _undoing(model, plan),
        _steps(model, plan, names, surroundings),
        _output(model, plan, names),
    )
    return [source.fault(("workflows", name, *route), message) for route, message in findings]


def check_inputs(model: WorkflowModel, names: Names) -> Iterator[Finding]:
    """What is wrong with what a workflow takes, and with what it says that a task is about."""
    for name in sorted(RESERVED & model.input.keys()):
        yield ("input", name), f"no input can be called {name!r}: choose another name"
    for route, message in check_properties(model.input):
        yield ("input", *route), message
    if model.subject is not None:
        for message in check_text(model.subject, names.without("env")):
            yield ("subject",), message


def _ids(model: PipelineModel) -> Iterator[Finding]:
    counted = Counter(step.id for step in model.steps)
    seen: set[str] = set()
    for place, step in enumerate(model.steps):
        if counted[step.id] > 1 and step.id in seen:
            yield ("steps", place, "id"), f"another step is called {step.id!r} too: give one of them another id"
        seen.add(step.id)


def _order(model: PipelineModel, plan: Plan) -> Iterator[Finding]:
    known = {step.id for step in model.steps}
    places = {step.id: place for place, step in enumerate(model.steps)}
    for place, step in enumerate(model.steps):
        for number, need in enumerate(step.needs or ()):
            at: Route = ("steps", place, "needs", number)
            if need not in known:
                yield at, f"there is no step {need!r}: there is {', '.join(sorted(known))}"
            elif need not in plan.order:
                yield at, f"step {need!r} only runs to undo another: nothing can need it"
    cycle = plan.cycle() if len(known) == len(model.steps) else None
    if cycle is not None:
        message = f"these steps wait for each other: {' -> '.join(cycle)}"
        yield ("steps", places[cycle[0]], "needs"), message


def _undoing(model: PipelineModel, plan: Plan) -> Iterator[Finding]:
    known = {step.id for step in model.steps}
    for place, step in enumerate(model.steps):
        by = plan.undoes.get(step.id)
        at: Route = ("steps", place, "on_error", "compensate")
        if by is not None and by not in known:
            yield at, f"there is no step {by!r}: there is {', '.join(sorted(known))}"
        elif by == step.id:
            yield at, "a step can't undo itself: name another"
        elif step.id in plan.undoes.values():
            if step.needs:
                yield ("steps", place, "needs"), "a step that undoes another needs nothing: remove it"
            if step.on_error != "fail":
                yield ("steps", place, "on_error"), "a step that undoes another has no on_error: remove it"
    if not plan.order:
        yield ("steps",), "all steps only run to undo others: add one that does something"


def _steps(model: PipelineModel, plan: Plan, names: Names, surroundings: Surroundings) -> Iterator[Finding]:
    for place, step in enumerate(model.steps):
        at: Route = ("steps", place)
        before = plan.before.get(step.id, frozenset())
        after = frozenset(one for one in plan.order if step.id in plan.before[one] and one not in before)
        here = names.at(before, step.id, after)
        for route, message in chain(_control(step, here), _values(step, here), check_reach(step, surroundings)):
            yield (*at, *route), message


def _control(step: StepModel, names: Names) -> Iterator[Finding]:
    """What decides whether and how often a step runs. It must be the same after a restart."""
    plain = names.without("env")
    rounds = plain.adding("result", "round", *(("item", "index") if step.for_each is not None else ()))
    said_of = (("if", step.condition, plain), ("for_each", step.for_each, plain), ("until", step.until, rounds))
    for key, said, those in said_of:
        if isinstance(said, str):
            for message in check_expression(said, those):
                yield (key,), message
        elif isinstance(said, list):
            for route, text in texts_in(said, (key,)):
                yield from ((route, message) for message in check_text(text, those))


def _values(step: StepModel, names: Names) -> Iterator[Finding]:
    if step.kind in WAITING:
        names = names.without("env")
    if step.for_each is not None:
        names = names.adding("item", "index")
    if step.until is not None:
        names = names.adding("round")
    for route, text in values_of(step):
        yield from ((route, message) for message in check_text(text, names))


def _output(model: PipelineModel, plan: Plan, names: Names) -> Iterator[Finding]:
    for route, text in texts_in(model.output, ("output",)):
        yield from ((route, message) for message in check_text(text, names.at(frozenset(plan.order))))
