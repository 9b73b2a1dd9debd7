"""What is wrong with a pipeline, beyond what its model sees: all of it, before anything is run.

Which step of a pipeline comes before which.

Workflows that run each other as steps.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from raincheck.workflows.definition import Fault
from raincheck.workflows.expressions.names import Names, check_expression, check_text
from raincheck.workflows.parsing.models import (
    RESERVED,
    CompensateModel,
    MachineModel,
    PipelineModel,
    StepModel,
    WorkflowModel,
)
from raincheck.workflows.parsing.source import Route, Source
from raincheck.workflows.permissions import Surroundings
from raincheck.workflows.validation.inputs import check_properties
from raincheck.workflows.validation.steps import check_reach, texts_in, values_of


def cycle_faults(models: Mapping[str, WorkflowModel], sources: Mapping[str, Source]) -> Iterator[Fault]:
    """Workflows that would run themselves, by whatever way, without end."""
    runs = {name: _children(one) for name, one in models.items()}
    for name, children in runs.items():
        way = _way_back(name, runs)
        if way is not None:
            message = f"this workflow runs itself without end: {' -> '.join(way)}"
            yield sources[name].fault(("workflows", name, *children[way[1]]), message)


def _children(model: WorkflowModel) -> dict[str, Route]:
    """The workflows that it runs, each with the way to the first place that does."""
    found: dict[str, Route] = {}
    for child, route in _runs(model):
        found.setdefault(child, route)
    return found


def _runs(model: WorkflowModel) -> Iterator[tuple[str, Route]]:
    if isinstance(model, PipelineModel):
        for place, step in enumerate(model.steps):
            if step.workflow is not None:
                yield step.workflow, ("steps", place, "workflow")
    if isinstance(model, MachineModel):
        for name, state in model.states.items():
            if state.action is not None and state.action.workflow is not None:
                yield state.action.workflow, ("states", name, "action", "workflow")


def _way_back(start: str, runs: Mapping[str, Mapping[str, Route]]) -> tuple[str, ...] | None:
    ways: list[tuple[str, ...]] = [(start,)]
    seen: set[str] = set()
    while ways:
        way = ways.pop(0)
        for one in runs.get(way[-1], {}):
            if one == start:
                return (*way, one)
            if one not in seen:
                seen.add(one)
                ways.append((*way, one))
    return None


@dataclass(frozen=True)
class Plan:
    """The order of the steps. Those that undo others are no part of it: they run if the pipeline fails."""

    order: tuple[str, ...]
    """The steps as the file has them."""
    needs: Mapping[str, tuple[str, ...]]
    undoes: Mapping[str, str]
    """What undoes a step, by the step."""
    before: Mapping[str, frozenset[str]]
    """All that has ended when a step begins. Whoever undoes something may use every step."""

    @classmethod
    def of(cls, model: PipelineModel) -> "Plan":
        """The plan. Needs that are unknown or go round in a circle lead nowhere in it: they are found elsewhere."""
        undoes = {one.id: one.on_error.compensate for one in model.steps if isinstance(one.on_error, CompensateModel)}
        order = tuple(one.id for one in model.steps if one.id not in undoes.values())
        steps = {one.id: one for one in model.steps}
        needs: dict[str, tuple[str, ...]] = {}
        for place, step_id in enumerate(order):
            said = steps[step_id].needs
            needs[step_id] = tuple(dict.fromkeys(order[max(place - 1, 0) : place] if said is None else said))
        before = {one: _before(one, needs) for one in order}
        before |= {one: frozenset(order) for one in undoes.values()}
        return cls(order, needs, undoes, before)

    def cycle(self) -> tuple[str, ...] | None:
        """Steps that need each other in a circle, the first of them at both ends."""
        done: set[str] = set()
        for start in self.order:
            found = self._cycle_from(start, [], done)
            if found is not None:
                return found
        return None

    def _cycle_from(self, step: str, way: list[str], done: set[str]) -> tuple[str, ...] | None:
        if step in way:
            return (*way[way.index(step) :], step)
        if step in done:
            return None
        for need in self.needs.get(step, ()):
            found = self._cycle_from(need, [*way, step], done)
            if found is not None:
                return found
        done.add(step)
        return None


def _before(step: str, needs: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    found: set[str] = set()
    left = list(needs[step])
    while left:
        one = left.pop()
        if one not in found and one in needs:
            found.add(one)
            left += needs[one]
    return frozenset(found)


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
