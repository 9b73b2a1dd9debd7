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
from raincheck.workflows.validation.steps import check_properties, check_references, templates_in, texts_in


def check_cycles(models: Mapping[str, WorkflowModel], sources: Mapping[str, Source]) -> Iterator[Diagnostic]:
    """Yield an error for each workflow that would run itself without end, directly or through others."""
    runs = {name: _children(model) for name, model in models.items()}
    for name, children in runs.items():
        cycle = _find_cycle(name, runs)
        if cycle is not None:
            message = f"this workflow runs itself without end: {' -> '.join(cycle)}"
            yield sources[name].diagnostic(("workflows", name, *children[cycle[1]]), message)


def _children(model: WorkflowModel) -> dict[str, KeyPath]:
    """Return the workflows that a workflow runs, each with the path of its first use."""
    found: dict[str, KeyPath] = {}
    for child, route in _runs(model):
        found.setdefault(child, route)
    return found


def _runs(model: WorkflowModel) -> Iterator[tuple[str, KeyPath]]:
    if isinstance(model, PipelineModel):
        for index, step in enumerate(model.steps):
            if step.workflow is not None:
                yield step.workflow, ("steps", index, "workflow")
    if isinstance(model, MachineModel):
        for name, state in model.states.items():
            if state.action is not None and state.action.workflow is not None:
                yield state.action.workflow, ("states", name, "action", "workflow")


def _find_cycle(start: str, runs: Mapping[str, Mapping[str, KeyPath]]) -> tuple[str, ...] | None:
    paths: list[tuple[str, ...]] = [(start,)]
    seen: set[str] = set()
    while paths:
        path = paths.pop(0)
        for child in runs.get(path[-1], {}):
            if child == start:
                return (*path, child)
            if child not in seen:
                seen.add(child)
                paths.append((*path, child))
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
        """Create the plan. It ignores unknown and cyclic needs, which other checks report."""
        compensations = {
            step.id: step.on_error.compensate for step in model.steps if isinstance(step.on_error, CompensateModel)
        }
        order = tuple(step.id for step in model.steps if step.id not in compensations.values())
        steps = {step.id: step for step in model.steps}
        needs: dict[str, tuple[str, ...]] = {}
        for index, step_id in enumerate(order):
            declared = steps[step_id].needs
            needs[step_id] = tuple(dict.fromkeys(order[max(index - 1, 0) : index] if declared is None else declared))
        predecessors = {step_id: _predecessors(step_id, needs) for step_id in order}
        predecessors |= {step_id: frozenset(order) for step_id in compensations.values()}
        return cls(order, needs, compensations, predecessors)

    def cycle(self) -> tuple[str, ...] | None:
        """Return steps that need each other in a cycle, with the first of them at both ends."""
        done: set[str] = set()
        for start in self.order:
            cycle = self._cycle_from(start, [], done)
            if cycle is not None:
                return cycle
        return None

    def _cycle_from(self, step: str, path: list[str], done: set[str]) -> tuple[str, ...] | None:
        if step in path:
            return (*path[path.index(step) :], step)
        if step in done:
            return None
        for need in self.needs.get(step, ()):
            cycle = self._cycle_from(need, [*path, step], done)
            if cycle is not None:
                return cycle
        done.add(step)
        return None


def _predecessors(step: str, needs: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    found: set[str] = set()
    pending = list(needs[step])
    while pending:
        need = pending.pop()
        if need not in found and need in needs:
            found.add(need)
            pending += needs[need]
    return frozenset(found)


Problem: TypeAlias = tuple[KeyPath, str]
"""The path of an error within a pipeline, and its message."""

WAITING_KINDS = frozenset({"ask", "sample", "workflow", "sleep"})
"""Kinds that wait through the task's context. Their requests must be the same after a restart, so without `env`."""


def check_pipeline(model: PipelineModel, name: str, source: Source, permissions: Permissions) -> list[Diagnostic]:
    """Return every error of a pipeline."""
    plan = Plan.from_model(model)
    names = AllowedNames(
        frozenset(model.input), frozenset(step.id for step in model.steps), frozenset(), permissions.env
    )
    problems = chain(
        check_inputs(model, names.without_roots("steps")),
        _ids(model),
        _order(model, plan),
        _check_compensations(model, plan),
        _steps(model, plan, names, permissions),
        _output(model, plan, names),
    )
    return [source.diagnostic(("workflows", name, *route), message) for route, message in problems]


def check_inputs(model: WorkflowModel, names: AllowedNames) -> Iterator[Problem]:
    """Yield the errors of a workflow's input and of its subject."""
    for name in sorted(RESERVED_INPUTS & model.input.keys()):
        yield ("input", name), f"the input name {name!r} is reserved: choose another name"
    for route, message in check_properties(model.input):
        yield ("input", *route), message
    if model.subject is not None:
        for message in check_text(model.subject, names.without_roots("env")):
            yield ("subject",), message


def _ids(model: PipelineModel) -> Iterator[Problem]:
    counted = Counter(step.id for step in model.steps)
    seen: set[str] = set()
    for index, step in enumerate(model.steps):
        if counted[step.id] > 1 and step.id in seen:
            yield ("steps", index, "id"), f"another step has the id {step.id!r} too: rename one of them"
        seen.add(step.id)


def _order(model: PipelineModel, plan: Plan) -> Iterator[Problem]:
    indexes = {step.id: index for index, step in enumerate(model.steps)}
    for index, step in enumerate(model.steps):
        for number, need in enumerate(step.needs or ()):
            at: KeyPath = ("steps", index, "needs", number)
            if need not in indexes:
                yield at, f"there is no step {need!r}: the steps are {', '.join(sorted(indexes))}"
            elif need not in plan.order:
                yield at, f"step {need!r} only runs to undo another step: remove it from `needs`"
    cycle = plan.cycle() if len(indexes) == len(model.steps) else None
    if cycle is not None:
        message = f"these steps wait for each other: {' -> '.join(cycle)}"
        yield ("steps", indexes[cycle[0]], "needs"), message


def _check_compensations(model: PipelineModel, plan: Plan) -> Iterator[Problem]:
    ids = {step.id for step in model.steps}
    for index, step in enumerate(model.steps):
        compensation = plan.compensations.get(step.id)
        at: KeyPath = ("steps", index, "on_error", "compensate")
        if compensation is not None and compensation not in ids:
            yield at, f"there is no step {compensation!r}: the steps are {', '.join(sorted(ids))}"
        elif compensation == step.id:
            yield at, "a step can't undo itself: name another step"
        elif step.id in plan.compensations.values():
            if step.needs:
                yield ("steps", index, "needs"), "a step that undoes another can't have `needs`: remove it"
            if step.on_error != "fail":
                yield ("steps", index, "on_error"), "a step that undoes another can't have `on_error`: remove it"
    if not plan.order:
        yield ("steps",), "all steps only run to undo other steps: add one that does the work"


def _steps(model: PipelineModel, plan: Plan, names: AllowedNames, permissions: Permissions) -> Iterator[Problem]:
    for index, step in enumerate(model.steps):
        before = plan.predecessors.get(step.id, frozenset())
        after = frozenset(name for name in plan.order if step.id in plan.predecessors[name] and name not in before)
        allowed = names.for_step(before, step.id, after)
        for route, message in chain(
            _control(step, allowed), _values(step, allowed), check_references(step, permissions)
        ):
            yield ("steps", index, *route), message


def _control(step: StepModel, names: AllowedNames) -> Iterator[Problem]:
    """Check the expressions that decide whether and how often a step runs. They must be the same after a restart."""
    before = names.without_roots("env")
    after = before.with_roots("result", "round", *(("item", "index") if step.for_each is not None else ()))
    fields = (("if", step.condition, before), ("for_each", step.for_each, before), ("until", step.until, after))
    for key, value, allowed in fields:
        if isinstance(value, str):
            for message in check_expression(value, allowed):
                yield (key,), message
        elif isinstance(value, list):
            for route, text in texts_in(value, (key,)):
                yield from ((route, message) for message in check_text(text, allowed))


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
