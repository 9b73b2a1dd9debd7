"""Pipelines: steps, each of which starts when the steps it needs have ended.

`Plan` is the order of the steps. `check_pipeline` reports every error of a pipeline before anything runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from typing import Any, cast

from raincheck.core.values import Json
from raincheck.engine.execution.context import TaskContext
from raincheck.engine.tool import TaskTool
from raincheck.workflows.actions import check_action
from raincheck.workflows.definition import ArgumentValidator, KeyPath, Problem
from raincheck.workflows.expressions.template import AllowedNames, Template, check_expression, check_texts
from raincheck.workflows.parsing.models import RESTORED, CompensateModel, PipelineModel, StepModel, object_schema
from raincheck.workflows.permissions import Permissions
from raincheck.workflows.pipelines.run import PipelineRun
from raincheck.workflows.pipelines.step import PipelineStep
from raincheck.workflows.validation import check_inputs


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
        sorter = TopologicalSorter[str](dict.fromkeys(self.order, ()))
        for step, needs in self.needs.items():
            for need in needs:
                # In this direction, so that each step of the cycle is followed by one that it needs.
                sorter.add(need, step)
        try:
            sorter.prepare()
        except CycleError as error:
            return tuple(error.args[1])
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


class Pipeline:
    """A pipeline that can be run. It is made from a model that `check_pipeline` has found no problem with."""

    def __init__(
        self, name: str, model: PipelineModel, permissions: Permissions, version: str, definition: bytes
    ) -> None:
        self.name = name
        self._definition = definition
        self.version = version
        self.description = model.description
        self.model = model
        self.permissions = permissions
        self.plan = Plan.from_model(model)
        self.steps: Mapping[str, PipelineStep] = {
            step.id: PipelineStep(step, permissions, model.max_parallel) for step in model.steps
        }
        self.output = None if model.output is None else Template.parse(model.output)
        self._subject = None if model.subject is None else Template.parse(model.subject)
        self._arguments = ArgumentValidator(name, self.input_schema)

    @property
    def input_schema(self) -> Mapping[str, Json]:
        """The JSON Schema of its arguments."""
        return cast("Mapping[str, Json]", object_schema(self.model.input))

    @property
    def unsafe_steps(self) -> Sequence[str]:
        """The steps with `unsafe: true`."""
        return [step.id for step in self.model.steps if step.is_unsafe]

    def predecessors(self, step_id: str) -> frozenset[str]:
        """Return the steps that have ended when this one starts: those it needs, directly or indirectly."""
        return self.plan.predecessors[step_id]

    def tool(self) -> TaskTool:
        """Return the tool that runs its tasks. The arguments of new tasks are validated against its schema."""

        async def body(task: TaskContext, **arguments: Any) -> Json:  # noqa: ANN401 - any input schema
            restored = cast("Mapping[str, Json]", arguments.pop(RESTORED, {}))
            return await PipelineRun(self, task, self._arguments.validate(arguments), restored).run()

        return TaskTool(
            body,
            self.name,
            self.version,
            timeout=self.model.timeout,
            validate=self._arguments.validate,
            get_subject=self._subject_of,
            definition=self._definition,
        )

    def _subject_of(self, arguments: Mapping[str, Json]) -> str | None:
        if self._subject is None:
            return None
        declared = {name: value for name, value in arguments.items() if name != RESTORED}
        return str(self._subject.render({"input": self._arguments.with_defaults(declared)}))


def check_pipeline(model: PipelineModel, permissions: Permissions) -> Iterator[Problem]:
    """Yield every error of a pipeline."""
    plan = Plan.from_model(model)
    steps = frozenset(step.id for step in model.steps)
    names = AllowedNames(model.input, permissions.env, steps)
    yield from check_inputs(model, names.without_roots("steps"))
    yield from _ids(model)
    yield from _order(model, plan)
    yield from _check_compensations(model, plan)
    yield from _steps(model, plan, names, permissions)
    yield from check_texts(model.output, ("output",), replace(names, before=frozenset(plan.order)))


def _ids(model: PipelineModel) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, step in enumerate(model.steps):
        if step.id in seen:
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
        allowed = replace(names, before=before, step=step.id, after=after)
        for route, message in chain(
            _control(step, allowed), check_action(step, _value_names(step, allowed), permissions)
        ):
            yield ("steps", index, *route), message


def _control(step: StepModel, names: AllowedNames) -> Iterator[Problem]:
    """Check the expressions that decide whether and how often a step runs. They must be the same after a restart."""
    before = names.without_roots("env")
    after = before.with_roots("result", "round", *(("item", "index") if step.for_each is not None else ()))
    fields = (("if", step.condition, before), ("for_each", step.for_each, before), ("until", step.until, after))
    for key, value, allowed in fields:
        if isinstance(value, str):
            yield from check_expression(value, (key,), allowed)
        elif isinstance(value, list):
            yield from check_texts(value, (key,), allowed)


def _value_names(step: StepModel, names: AllowedNames) -> AllowedNames:
    """Return the names that the values of a step may use."""
    roots = (*(("item", "index") if step.for_each is not None else ()), *(("round",) if step.until is not None else ()))
    return names.with_roots(*roots)
