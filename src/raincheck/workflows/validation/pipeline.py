"""Check a pipeline beyond its schema: every error is reported before anything runs.

`Plan` is the order of a pipeline's steps. `check_cycles` finds workflows that run each other as steps without end.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from raincheck.workflows.definition import Diagnostic
from raincheck.workflows.expressions.names import AllowedNames, check_expression, check_text
from raincheck.workflows.parsing.models import (
    RESERVED_INPUTS,
    CompensateModel,
    MachineModel,
    PipelineModel,
    StepModel,
    WorkflowModel,
)
from raincheck.workflows.parsing.source import KeyPath, Source
from raincheck.workflows.permissions import Permissions
from raincheck.workflows.validation.inputs import check_properties
from raincheck.workflows.validation.steps import check_references, templates_in, texts_in


def check_cycles(models: Mapping[str, WorkflowModel], sources: Mapping[str, Source]) -> Iterator[Diagnostic]:
    """Yield an error for each workflow that would run itself without end, directly or through others."""
    runs = {name: _children(one) for name, one in models.items()}
    for name, children in runs.items():
        way = _find_cycle(name, runs)
        if way is not None:
            message = f"this workflow runs itself without end: {' -> '.join(way)}"
            yield sources[name].diagnostic(("workflows", name, *children[way[1]]), message)


def _children(model: WorkflowModel) -> dict[str, KeyPath]:
    """Return the workflows that a workflow runs, each with the path of its first use."""
    found: dict[str, KeyPath] = {}
    for child, route in _runs(model):
        found.setdefault(child, route)
    return found


def _runs(model: WorkflowModel) -> Iterator[tuple[str, KeyPath]]:
    if isinstance(model, PipelineModel):
        for place, step in enumerate(model.steps):
            if step.workflow is not None:
                yield step.workflow, ("steps", place, "workflow")
    if isinstance(model, MachineModel):
        for name, state in model.states.items():
            if state.action is not None and state.action.workflow is not None:
                yield state.action.workflow, ("states", name, "action", "workflow")


def _find_cycle(start: str, runs: Mapping[str, Mapping[str, KeyPath]]) -> tuple[str, ...] | None:
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
    """The order of the steps. Compensating steps are not part of it: they run if the pipeline fails."""

    order: tuple[str, ...]
    """The steps in the order of the file."""
    needs: Mapping[str, tuple[str, ...]]
    compensations: Mapping[str, str]
    """The compensating step of each step that has one."""
    predecessors: Mapping[str, frozenset[str]]
    """All steps that have ended when a step starts. A compensating step may use every step."""

    @classmethod
    def from_model(cls, model: PipelineModel) -> "Plan":
        """Create the plan. Unknown or cyclic needs lead nowhere in it: other checks report them."""
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
        """Return steps that need each other in a cycle, with the first of them at both ends."""
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


Problem: TypeAlias = tuple[KeyPath, str]
"""The path of an error within a pipeline, and its message."""

WAITING_KINDS = frozenset({"ask", "sample", "workflow", "sleep"})
"""Kinds that wait through the task's context. Their requests must be the same after a restart, so without `env`."""


def check_pipeline(model: PipelineModel, name: str, source: Source, permissions: Permissions) -> list[Diagnostic]:
    """Return every error of a pipeline."""
    plan = Plan.from_model(model)
    names = AllowedNames(frozenset(model.input), frozenset(one.id for one in model.steps), frozenset(), permissions.env)
    findings = chain(
        check_inputs(model, names.without_roots("steps")),
        _ids(model),
        _order(model, plan),
        _check_compensations(model, plan),
        _steps(model, plan, names, permissions),
        _output(model, plan, names),
    )
    return [source.diagnostic(("workflows", name, *route), message) for route, message in findings]


def check_inputs(model: WorkflowModel, names: AllowedNames) -> Iterator[Problem]:
    """Yield the errors of a workflow's input and of its subject."""
    for name in sorted(RESERVED_INPUTS & model.input.keys()):
        yield ("input", name), f"no input can be called {name!r}: choose another name"
    for route, message in check_properties(model.input):
        yield ("input", *route), message
    if model.subject is not None:
        for message in check_text(model.subject, names.without_roots("env")):
            yield ("subject",), message


def _ids(model: PipelineModel) -> Iterator[Problem]:
    counted = Counter(step.id for step in model.steps)
    seen: set[str] = set()
    for place, step in enumerate(model.steps):
        if counted[step.id] > 1 and step.id in seen:
            yield ("steps", place, "id"), f"another step is called {step.id!r} too: give one of them another id"
        seen.add(step.id)


def _order(model: PipelineModel, plan: Plan) -> Iterator[Problem]:
    known = {step.id for step in model.steps}
    places = {step.id: place for place, step in enumerate(model.steps)}
    for place, step in enumerate(model.steps):
        for number, need in enumerate(step.needs or ()):
            at: KeyPath = ("steps", place, "needs", number)
            if need not in known:
                yield at, f"there is no step {need!r}: there is {', '.join(sorted(known))}"
            elif need not in plan.order:
                yield at, f"step {need!r} only runs to undo another: nothing can need it"
    cycle = plan.cycle() if len(known) == len(model.steps) else None
    if cycle is not None:
        message = f"these steps wait for each other: {' -> '.join(cycle)}"
        yield ("steps", places[cycle[0]], "needs"), message


def _check_compensations(model: PipelineModel, plan: Plan) -> Iterator[Problem]:
    known = {step.id for step in model.steps}
    for place, step in enumerate(model.steps):
        by = plan.compensations.get(step.id)
        at: KeyPath = ("steps", place, "on_error", "compensate")
        if by is not None and by not in known:
            yield at, f"there is no step {by!r}: there is {', '.join(sorted(known))}"
        elif by == step.id:
            yield at, "a step can't undo itself: name another"
        elif step.id in plan.compensations.values():
            if step.needs:
                yield ("steps", place, "needs"), "a step that undoes another needs nothing: remove it"
            if step.on_error != "fail":
                yield ("steps", place, "on_error"), "a step that undoes another has no on_error: remove it"
    if not plan.order:
        yield ("steps",), "all steps only run to undo others: add one that does something"


def _steps(model: PipelineModel, plan: Plan, names: AllowedNames, permissions: Permissions) -> Iterator[Problem]:
    for place, step in enumerate(model.steps):
        at: KeyPath = ("steps", place)
        before = plan.predecessors.get(step.id, frozenset())
        after = frozenset(one for one in plan.order if step.id in plan.predecessors[one] and one not in before)
        here = names.for_step(before, step.id, after)
        for route, message in chain(_control(step, here), _values(step, here), check_references(step, permissions)):
            yield (*at, *route), message


def _control(step: StepModel, names: AllowedNames) -> Iterator[Problem]:
    """Check the expressions that decide whether and how often a step runs. They must be the same after a restart."""
    plain = names.without_roots("env")
    rounds = plain.with_roots("result", "round", *(("item", "index") if step.for_each is not None else ()))
    said_of = (("if", step.condition, plain), ("for_each", step.for_each, plain), ("until", step.until, rounds))
    for key, said, those in said_of:
        if isinstance(said, str):
            for message in check_expression(said, those):
                yield (key,), message
        elif isinstance(said, list):
            for route, text in texts_in(said, (key,)):
                yield from ((route, message) for message in check_text(text, those))


def _values(step: StepModel, names: AllowedNames) -> Iterator[Problem]:
    if step.kind in WAITING_KINDS:
        names = names.without_roots("env")
    if step.for_each is not None:
        names = names.with_roots("item", "index")
    if step.until is not None:
        names = names.with_roots("round")
    for route, text in templates_in(step):
        yield from ((route, message) for message in check_text(text, names))


def _output(model: PipelineModel, plan: Plan, names: AllowedNames) -> Iterator[Problem]:
    for route, text in texts_in(model.output, ("output",)):
        yield from ((route, message) for message in check_text(text, names.for_step(frozenset(plan.order))))
