"""One step of a pipeline: whether it is done, for which items, in how many rounds, and what came of it."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from raincheck.core.payload import Json
from raincheck.errors import ConfigurationError, PayloadSealed, RaincheckError, StoreError, TaskError, TooLarge
from raincheck.workflows.actions.base import ActionFailed
from raincheck.workflows.expressions.template import Expression, ExpressionFailed, Scope, Template
from raincheck.workflows.parsing.models import StepModel
from raincheck.workflows.permissions import Surroundings
from raincheck.workflows.pipelines.retry import Doing, Tried, Tries, failed

Status: TypeAlias = Literal["completed", "failed", "skipped", "interrupted"]

MOST_ITEMS = 1_000
"""Of one `for_each`. Each has a checkpoint of its own, and a task has room for 10,000."""

NOT_OF_THE_STEP = (TaskError, StoreError, PayloadSealed, ConfigurationError)
"""Errors that end the attempt, and say nothing of how the step ended."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a step ended, as expressions see it."""

    status: Status
    result: Json = None
    error: Json = None
    failed: tuple[Json, ...] = ()
    """The items of `for_each` that failed, each `{index, error}`."""
    is_recorded: bool = True
    """Whether a later attempt can find it by itself."""

    @classmethod
    def of(cls, outcome: Tried) -> "Ended":
        return cls("completed" if outcome.is_ok else "failed", outcome.result, outcome.error)

    @property
    def seen(self) -> Json:
        return {"status": self.status, "result": self.result, "error": self.error, "failed": list(self.failed)}


class Step:
    """A step, ready to be run in any task."""

    def __init__(self, model: StepModel, surroundings: Surroundings, max_parallel: int) -> None:
        self.id = model.id
        self.model = model
        self.doing = Doing(model, surroundings)
        self._if = _condition(model.condition)
        self._for_each = None if model.for_each is None else _items(model.for_each)
        self._until = None if model.until is None else Expression.parse(model.until)
        self._max_parallel = model.max_parallel or max_parallel

    async def run(self, tries: Tries, scope: Scope) -> Ended:
        """Do what the step says. What goes wrong is part of how it ended."""
        try:
            if self._if is not None and not self._if.evaluate(scope):
                return Ended("skipped")
            if self._for_each is None:
                ended = Ended.of(await self._rounds(tries, self.id, scope))
            else:
                ended = await self._run_all(tries, scope, _listed(self._for_each(scope)))
            if ended.status == "completed":
                await tries.keep(self.model.artifact, ended.result)
        except ExpressionFailed as error:
            return Ended.of(failed("expression", str(error)))
        except ActionFailed as error:
            return Ended.of(failed(error.kind, str(error)))
        except RaincheckError as error:
            return _unrecorded(error)
        except ExceptionGroup as errors:
            # Of several items. What says nothing of the step comes first.
            return _unrecorded(min(errors.exceptions, key=_is_of_the_step))
        return ended

    async def _run_all(self, tries: Tries, scope: Scope, items: list[Json]) -> Ended:
        room = asyncio.Semaphore(self._max_parallel)

        async def run(index: int, item: Json) -> Tried:
            async with room:
                return await self._rounds(tries, f"{self.id}[{index}]", {**scope, "item": item, "index": index})

        async with asyncio.TaskGroup() as group:
            jobs = [group.create_task(run(index, item)) for index, item in enumerate(items)]
        return self._together([job.result() for job in jobs])

    def _together(self, outcomes: list[Tried]) -> Ended:
        bad = [(index, one) for index, one in enumerate(outcomes) if not one.is_ok]
        results = [one.result for one in outcomes]
        told: tuple[Json, ...] = tuple({"index": index, "error": one.error} for index, one in bad)
        # With some room, since 0.7 * 10 is a little more than 7.
        if len(outcomes) - len(bad) >= self.model.min_success_rate * len(outcomes) - 1e-6:
            return Ended("completed", results, None, told)
        index, first = bad[0]
        message = f"{len(bad)} of {len(outcomes)} items failed, the first at index {index}: {first.message}"
        return Ended("failed", results, {"kind": first.kind, "message": message}, told)

    async def _rounds(self, tries: Tries, name: str, scope: Scope) -> Tried:
        """What came of it: at once, or in the round after which `until` holds."""
        if self._until is None:
            return await self.doing.outcome(tries, name, scope)
        rounds = self.model.max_rounds or 1
        for number in range(1, rounds + 1):
            scope = {**scope, "round": number}
            this = name if number == 1 else f"{name} round {number}"
            outcome = await self.doing.outcome(tries, this, scope)
            if not outcome.is_ok:
                return outcome
            try:
                if self._until.evaluate({**scope, "result": outcome.result}):
                    return outcome
            except ExpressionFailed as error:
                return failed("expression", str(error))
            if number < rounds and self.model.every:
                await tries.pause(self.model.every, f"{this} every")
        return failed("failed", f"{self._until.source!r} did not hold after {rounds} rounds")


def _unrecorded(error: Exception) -> Ended:
    """How a step ended of which the engine can't record more, be it that it has reached a limit."""
    if not _is_of_the_step(error):
        raise error
    outcome = failed("too-large" if isinstance(error, TooLarge) else "failed", str(error))
    return Ended("failed", None, outcome.error, is_recorded=False)


def _is_of_the_step(error: Exception) -> bool:
    return isinstance(error, RaincheckError) and not isinstance(error, NOT_OF_THE_STEP)


def _condition(said: str | bool | None) -> Expression | None:
    return None if said is None else Expression.parse(said if isinstance(said, str) else str(said).lower())


def _items(said: str | list[Json]) -> Callable[[Scope], Json]:
    return Expression.parse(said).evaluate if isinstance(said, str) else Template.parse(said).render


def _listed(value: Json) -> list[Json]:
    if isinstance(value, Mapping):
        value = [{"key": key, "value": one} for key, one in value.items()]
    if not isinstance(value, list):
        raise ExpressionFailed("`for_each` takes a list, or a mapping, whose items are {key, value}")
    items = cast("list[Json]", value)
    if len(items) > MOST_ITEMS:
        raise ExpressionFailed(f"`for_each` has {len(items):,} items, and {MOST_ITEMS:,} are allowed")
    return items
