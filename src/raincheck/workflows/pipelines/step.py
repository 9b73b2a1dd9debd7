"""One step of a pipeline: its condition, its items, its rounds and its result.

`find_restorable` reads the results of steps in an earlier run from the checkpoints of its task.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from raincheck.core.values import Json
from raincheck.errors import ConfigurationError, PayloadSealed, RaincheckError, StoreError, TaskError
from raincheck.workflows.actions import make_action
from raincheck.workflows.actions.base import ActionFailed, ActionResult, Tries
from raincheck.workflows.expressions.template import Expression, ExpressionFailed, Scope, Template
from raincheck.workflows.parsing.models import StepModel
from raincheck.workflows.permissions import Permissions

if TYPE_CHECKING:
    from raincheck.workflows.pipelines.pipeline import Pipeline

StepStatus: TypeAlias = Literal["completed", "failed", "skipped", "interrupted"]

MAX_ITEMS = 1_000
"""Items of one `for_each`. Each has its own checkpoint, and a task can have 10,000."""

ATTEMPT_ERRORS = (TaskError, StoreError, PayloadSealed, ConfigurationError)
"""Errors that end the attempt, and do not show how the step ended."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """How a step ended, as expressions see it."""

    status: StepStatus
    result: Json = None
    error: Json = None
    failed: tuple[Json, ...] = ()
    """The items of `for_each` that failed, each as `{index, error}`."""
    is_recorded: bool = True
    """Whether a later attempt can find the result in the records."""

    @classmethod
    def from_action(cls, outcome: ActionResult) -> "StepResult":
        return cls("completed" if outcome.is_ok else "failed", outcome.result, outcome.error)

    @property
    def for_expressions(self) -> Json:
        return {"status": self.status, "result": self.result, "error": self.error, "failed": list(self.failed)}


class PipelineStep:
    """A step that can run in any task."""

    def __init__(self, model: StepModel, permissions: Permissions, max_parallel: int) -> None:
        self.id = model.id
        self.model = model
        self.action = make_action(model, permissions)
        self._if = _condition(model.condition)
        self._for_each = None if model.for_each is None else _items(model.for_each)
        self._until = None if model.until is None else Expression.parse(model.until)
        self._max_parallel = model.max_parallel or max_parallel

    async def run(self, tries: Tries, scope: Scope) -> StepResult:
        """Run the step. An error is part of the result."""
        try:
            if self._if is not None and not self._if.evaluate(scope):
                return StepResult("skipped")
            if self._for_each is None:
                ended = StepResult.from_action(await self._rounds(tries, self.id, scope))
            else:
                ended = await self._run_all(tries, scope, _listed(self._for_each(scope)))
            if ended.status == "completed":
                await tries.store_artifact(self.model.artifact, ended.result)
        except (ExpressionFailed, ActionFailed) as error:
            return StepResult.from_action(ActionResult.from_error(error))
        except RaincheckError as error:
            return _unrecorded(error)
        except ExceptionGroup as errors:
            # Several items failed. An error that does not show how the step ended takes precedence.
            return _unrecorded(min(errors.exceptions, key=_is_step_error))
        return ended

    async def _run_all(self, tries: Tries, scope: Scope, items: list[Json]) -> StepResult:
        limit = asyncio.Semaphore(self._max_parallel)

        async def run(index: int, item: Json) -> ActionResult:
            async with limit:
                return await self._rounds(tries, f"{self.id}[{index}]", {**scope, "item": item, "index": index})

        async with asyncio.TaskGroup() as group:
            runs = [group.create_task(run(index, item)) for index, item in enumerate(items)]
        return self._combine([item_run.result() for item_run in runs])

    def _combine(self, outcomes: list[ActionResult]) -> StepResult:
        failures = [(index, outcome.error) for index, outcome in enumerate(outcomes) if outcome.error is not None]
        results = [outcome.result for outcome in outcomes]
        errors: tuple[Json, ...] = tuple({"index": index, "error": error} for index, error in failures)
        # With a tolerance, since 0.07 * 100 is slightly more than 7.
        if len(outcomes) - len(failures) >= self.model.min_success_rate * len(outcomes) - 1e-6:
            return StepResult("completed", results, None, errors)
        index, first = failures[0]
        message = f"{len(failures)} of {len(outcomes)} items failed, the first at index {index}: {first['message']}"
        return StepResult("failed", results, {"kind": first["kind"], "message": message}, errors)

    async def _rounds(self, tries: Tries, name: str, scope: Scope) -> ActionResult:
        """Return the outcome of the action: of its only run, or of the round after which `until` holds."""
        if self._until is None:
            return await self.action.run(tries, name, scope)
        rounds = self.model.max_rounds or 1
        for number in range(1, rounds + 1):
            scope = {**scope, "round": number}
            round_name = name if number == 1 else f"{name} round {number}"
            outcome = await self.action.run(tries, round_name, scope)
            if not outcome.is_ok:
                return outcome
            try:
                if self._until.evaluate({**scope, "result": outcome.result}):
                    return outcome
            except ExpressionFailed as error:
                return ActionResult.from_error(error)
            if number < rounds and self.model.every:
                await tries.pause(self.model.every, f"{round_name} every")
        return ActionResult.failed("failed", f"{self._until.source!r} was still false after {rounds} rounds")


def _unrecorded(error: Exception) -> StepResult:
    """Return the result of a step whose outcome the engine can't record, for example because of a limit."""
    if not _is_step_error(error):
        raise error
    return StepResult("failed", None, ActionResult.from_error(error).error, is_recorded=False)


def _is_step_error(error: Exception) -> bool:
    return isinstance(error, RaincheckError) and not isinstance(error, ATTEMPT_ERRORS)


def _condition(value: str | bool | None) -> Expression | None:
    return None if value is None else Expression.parse(value if isinstance(value, str) else str(value).lower())


def _items(value: str | list[Json]) -> Callable[[Scope], Json]:
    return Expression.parse(value).evaluate if isinstance(value, str) else Template.parse(value).render


def _listed(value: Json) -> list[Json]:
    if isinstance(value, Mapping):
        value = [{"key": key, "value": item} for key, item in value.items()]
    if not isinstance(value, list):
        raise ExpressionFailed("`for_each` must be a list, or a mapping, whose items are {key, value}")
    items = cast("list[Json]", value)
    if len(items) > MAX_ITEMS:
        raise ExpressionFailed(f"`for_each` has {len(items):,} items, but only {MAX_ITEMS:,} are allowed")
    return items


CHECKPOINT = re.compile(r"(?P<step>[\w-]+)(\[(?P<index>\d+)\])?( round (?P<round>\d+))?( try (?P<try>\d+))?")
"""The name of a checkpoint: the step, the item of its `for_each`, the round, and the try in that round."""


def find_restorable(pipeline: "Pipeline", step: str, checkpoints: Mapping[str, Json]) -> dict[str, Json]:
    """Return the results that a rerun from a step can reuse: those of all steps that do not come after it.

    The checkpoints of a step with items or rounds do not show whether more of them would have followed. Such a step is
    complete if a step that needs it has started.
    """
    recorded = _last_outcomes(checkpoints)
    found: dict[str, Json] = {}
    for step_id in pipeline.plan.order:
        comes_later = step_id == step or step in pipeline.predecessors(step_id)
        # A compensated step has no valid result any more.
        is_undone = pipeline.plan.compensations.get(step_id) in recorded
        if comes_later or is_undone or step_id not in recorded:
            continue
        model = pipeline.steps[step_id].model
        is_complete = (model.for_each is None and model.until is None) or any(
            step_id in pipeline.predecessors(other) for other in recorded if other in pipeline.plan.order
        )
        outcomes = [outcome for _, outcome in sorted(recorded[step_id].items())]
        if model.for_each is not None and is_complete:
            found[step_id] = [outcome.result for outcome in outcomes]
        elif is_complete and all(outcome.is_ok for outcome in outcomes):
            found[step_id] = outcomes[0].result
    return found


def _last_outcomes(checkpoints: Mapping[str, Json]) -> dict[str, dict[int, ActionResult]]:
    """Return the outcome of the last try of each step, by the index of its item; -1 without `for_each`."""
    # Checkpoints that are not named after a step, or are not the record of a try, are skipped.
    records = [
        (parts, value)
        for name, value in checkpoints.items()
        if (parts := CHECKPOINT.fullmatch(name)) and isinstance(value, Mapping) and set(value) in ({"ok"}, {"error"})
    ]
    records.sort(key=lambda record: (int(record[0]["round"] or 1), int(record[0]["try"] or 1)))
    found: dict[str, dict[int, ActionResult]] = {}
    for parts, value in records:
        found.setdefault(parts["step"], {})[int(parts["index"] or -1)] = ActionResult.from_record(value)
    return found
