"""Run an action durably: each try is a checkpoint, whatever its outcome, so that no try is repeated.

The record of a try is `{"ok": result}` or `{"error": {"kind": …, "message": …}}`. An attempt that resumes after a crash
finds the same results and errors, and so reaches the same point.

The tries of a step come from a `Tries`, which makes them (`LiveTries`) or replays their records. The timeout of an
action that waits through the task's context holds however often the task is parked meanwhile. `make_action` creates
the action of each kind.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, assert_never, cast

from raincheck.core.limits import Limits
from raincheck.core.payload import Json, encode
from raincheck.core.validation import clip
from raincheck.engine.execution.context import TaskContext
from raincheck.engine.execution.local_api import local_task_api
from raincheck.errors import NotJson, TooLarge
from raincheck.workflows.actions.base import Action, ActionCall, ActionFailed, SetAction
from raincheck.workflows.actions.call import CallAction
from raincheck.workflows.actions.http import HttpAction
from raincheck.workflows.actions.python import PythonAction
from raincheck.workflows.actions.run import RunAction
from raincheck.workflows.actions.sample import make_sample_action
from raincheck.workflows.actions.wait import AskAction, SleepAction, WorkflowAction
from raincheck.workflows.expressions.template import ExpressionFailed, Scope
from raincheck.workflows.parsing.models import ActionModel, ErrorKind, RetryModel
from raincheck.workflows.permissions import Permissions


class Tries(Protocol):
    """The source of a step's tries."""

    async def run_try(self, runner: "ActionRunner", name: str, scope: Scope) -> "ActionResult":
        """Return the outcome of the try of this name."""
        ...

    async def pause(self, seconds: float, name: str) -> None:
        """Wait before the next try."""
        ...

    async def store_artifact(self, artifact: str | None, result: Json) -> None:
        """Store the result as the artifact of this name, if there is one.

        Raises:
            ActionFailed: it is too large.
        """
        ...


class LiveTries:
    """Tries that a task makes, each once."""

    def __init__(self, task: TaskContext) -> None:
        self._task = task

    async def run_try(self, runner: "ActionRunner", name: str, scope: Scope) -> "ActionResult":
        return await runner.try_once(ActionCall(self._task, name, scope))

    async def pause(self, seconds: float, name: str) -> None:
        await self._task.sleep(seconds, name=name)

    async def store_artifact(self, artifact: str | None, result: Json) -> None:
        if artifact is None:
            return
        try:
            await self._task.artifact(artifact, result)
        except TooLarge as error:
            raise ActionFailed("too-large", str(error)) from error


def make_action(model: ActionModel, permissions: Permissions) -> Action:
    """Return the action that the model declares."""
    # The value of its kind. The model has checked that it exists.
    options: Any = getattr(model, model.kind)
    match model.kind:
        case "run":
            return RunAction(options, permissions)
        case "http":
            return HttpAction(options, permissions)
        case "python":
            return PythonAction(options, model.arguments, permissions)
        case "call":
            return CallAction(options, permissions)
        case "ask":
            return AskAction(options)
        case "sample":
            return make_sample_action(options)
        case "workflow":
            return WorkflowAction(options, model.arguments)
        case "set":
            return SetAction(options, permissions)
        case "sleep":
            return SleepAction(options)
        case _:
            assert_never(model.kind)


async def record_with_timeout(
    timeout: float | None,  # noqa: ASYNC109 - None is no timeout
    call: ActionCall,
    work: Callable[[], Awaitable[Json]],
) -> Json:
    """Record the outcome of work that waits, or that it timed out, and return the record."""
    task = call.task
    if timeout is None:
        return await task.step(call.name, partial(_return_record, await work()))
    running = asyncio.ensure_future(work())
    timer = asyncio.ensure_future(task.sleep(timeout, name=f"{call.name} timeout"))
    try:
        await asyncio.wait([running, timer], return_when=asyncio.FIRST_COMPLETED)
        is_late = not running.done()
        record = _timeout_record(timeout) if is_late else running.result()
        # Recorded before the work is cancelled, since an attempt that resumes must repeat every request made before.
        recorded = await task.step(call.name, partial(_return_record, record))
        if is_late:
            # Its input request, if it made one.
            await local_task_api(task).withdraw_input(call.name)
        return recorded
    finally:
        running.cancel()
        timer.cancel()
        await asyncio.gather(running, timer, return_exceptions=True)


def _timeout_record(seconds: float) -> Json:
    return {"error": {"kind": "timeout", "message": f"it took longer than {seconds:g} s"}}


async def _return_record(record: Json) -> Json:
    return record


MAX_RESULT_BYTES = Limits().step - 10_000
"""Bytes of JSON that a result may have: the size of a checkpoint, less room for the record around it."""

MAX_BACKOFF = 3_600.0
"""The maximum backoff between two tries, in seconds."""


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The outcome of an action: a result, or an error of a kind."""

    result: Json = None
    kind: str | None = None
    message: str = ""

    @property
    def is_ok(self) -> bool:
        return self.kind is None

    @property
    def error(self) -> Json:
        """The error as expressions see it."""
        return None if self.kind is None else {"kind": self.kind, "message": self.message}

    @property
    def record(self) -> Json:
        return {"ok": self.result} if self.kind is None else {"error": self.error}

    @classmethod
    def from_record(cls, record: Json) -> "ActionResult":
        """Create the outcome from its record."""
        fields = cast("Mapping[str, Json]", record)
        if "ok" in fields:
            return cls(fields["ok"])
        error = cast("Mapping[str, Json]", fields["error"])
        return cls(None, str(error["kind"]), str(error["message"]))


def error_result(kind: ErrorKind, message: str) -> ActionResult:
    return ActionResult(None, kind, clip(message) or "")


class ActionRunner:
    """An action with its timeout and its retries."""

    def __init__(self, model: ActionModel, permissions: Permissions) -> None:
        self.action = make_action(model, permissions)
        self._timeout = model.timeout
        self._retry = model.retry or RetryModel(attempts=1)

    async def run(self, tries: Tries, name: str, scope: Scope) -> ActionResult:
        """Run the action, with its retries. `name` is that of the checkpoint, and unique within the task."""
        backoff = self._retry.backoff
        for number in range(1, self._retry.attempts):
            try_name = _numbered(name, number)
            outcome = await tries.run_try(self, try_name, scope)
            if outcome.is_ok or outcome.kind not in self._retry.on:
                return outcome
            if backoff:
                await tries.pause(round(backoff, 3), f"{try_name} backoff")
            backoff = min(backoff * self._retry.factor, MAX_BACKOFF)
        return await tries.run_try(self, _numbered(name, self._retry.attempts), scope)

    async def try_once(self, call: ActionCall) -> ActionResult:
        """Run one try, unless it is recorded already."""
        perform = partial(_perform_and_record, self._perform, call)
        if self.action.waits:
            # It has its own checkpoints, and is recorded when they have an outcome.
            return ActionResult.from_record(await record_with_timeout(self._timeout, call, perform))
        return ActionResult.from_record(await call.task.step(call.name, perform))

    async def _perform(self, call: ActionCall) -> Json:
        # The timeout of an action that waits through the task's context is durable, in `record_with_timeout`: it also
        # runs while the task is parked or no process runs.
        limit = asyncio.timeout(None if self.action.waits else self._timeout)
        try:
            async with limit:
                return await self.action.perform(call)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ActionFailed("timeout", f"it took longer than {self._timeout:g} s") from error


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name} try {number}"


async def _perform_and_record(perform: Callable[[ActionCall], Awaitable[Json]], call: ActionCall) -> Json:
    """Perform the action, and return the record of its outcome."""
    try:
        result = await perform(call)
        size = len(encode(result, what="its result"))
    except ActionFailed as error:
        return error_result(error.kind, str(error)).record
    except ExpressionFailed as error:
        return error_result("expression", str(error)).record
    except TooLarge as error:
        return error_result("too-large", str(error)).record
    except NotJson as error:
        return error_result("failed", str(error)).record
    if size > MAX_RESULT_BYTES:
        message = f"its result has {size:,} bytes, but only {MAX_RESULT_BYTES:,} are allowed: write it to a file"
        return error_result("too-large", message).record
    return ActionResult(result).record
