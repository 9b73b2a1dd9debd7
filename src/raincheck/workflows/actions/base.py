"""Actions, which steps and states run: their interface, and running one durably.

Each kind of action is a class, which checks what a file declares for it and performs it. `raincheck.workflows.actions`
lists the classes by kind.

Each try of an action is a checkpoint, whatever its outcome, so that no try is repeated. Its record is `{"ok": result}`
or `{"error": {"kind": …, "message": …}}`. An attempt that resumes after a crash finds the same results and errors, and
so reaches the same point. `Tries` makes the tries; a subclass replays their records. The timeout of an action that
waits through the task's context holds however often the task is parked meanwhile.
"""

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar, cast

from raincheck.core.policies import Limits
from raincheck.core.values import Json, clip, encode
from raincheck.engine.execution.context import TaskContext
from raincheck.engine.execution.workflow_context import WorkflowContext
from raincheck.errors import InvalidValue, NotJson, RaincheckError, TooLarge
from raincheck.tracebacks import text_logger
from raincheck.workflows.definition import Problem
from raincheck.workflows.expressions.template import ExpressionFailed, Scope
from raincheck.workflows.parsing.models import ActionModel, ErrorKind, RetryModel
from raincheck.workflows.permissions import Permissions

R = TypeVar("R")
logger = text_logger(__name__)


class ActionFailed(RaincheckError):
    """An action failed. `kind` is the kind of failure."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind


@dataclass(frozen=True, slots=True)
class ActionCall:
    """One execution of an action."""

    task: TaskContext
    name: str
    """The name of its checkpoint, which no other call of the task has."""
    scope: Scope


class Tries:
    """The tries of an action that a task makes, each once."""

    def __init__(self, task: TaskContext) -> None:
        self._task = task

    async def run_try(self, action: "Action", name: str, scope: Scope) -> "ActionResult":
        """Return the outcome of the try of this name."""
        return await action.try_once(ActionCall(self._task, name, scope))

    async def pause(self, seconds: float, name: str) -> None:
        """Wait before the next try."""
        await self._task.sleep(seconds, name=name)

    async def store_artifact(self, artifact: str | None, result: Json) -> None:
        """Store the result as the artifact of this name, if there is one.

        Raises:
            ActionFailed: it is too large.
        """
        if artifact is None:
            return
        try:
            await self._task.artifact(artifact, result)
        except TooLarge as error:
            raise ActionFailed("too-large", str(error)) from error


MAX_RESULT_BYTES = Limits().step - 10_000
"""Bytes of JSON that a result may have: the size of a checkpoint, less room for the record around it."""

MAX_BACKOFF = 3_600.0
"""The maximum backoff between two tries, in seconds."""


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The outcome of an action: a result, or an error of a kind."""

    result: Json = None
    error: Mapping[str, str] | None = None
    """The error as expressions see it: `{kind, message}`."""

    @property
    def is_ok(self) -> bool:
        return self.error is None

    @property
    def record(self) -> Json:
        return {"ok": self.result} if self.error is None else {"error": self.error}

    @classmethod
    def failed(cls, kind: ErrorKind, message: str) -> "ActionResult":
        return cls(None, {"kind": kind, "message": clip(message) or ""})

    @classmethod
    def from_error(cls, error: Exception) -> "ActionResult":
        return cls.failed(cls.kind_of(error), str(error))

    @staticmethod
    def kind_of(error: Exception) -> ErrorKind:
        match error:
            case ActionFailed():
                return error.kind
            case ExpressionFailed():
                return "expression"
            case _:
                return "too-large" if isinstance(error, TooLarge) else "failed"

    @classmethod
    def from_record(cls, record: Json) -> "ActionResult":
        """Create the outcome from its record."""
        fields = cast("Mapping[str, Any]", record)
        return cls(fields.get("ok"), fields.get("error"))


class Action(ABC):
    """An action of a step or a state. There is a class for each kind.

    An instance is made from a model that `check` has found no problem with.
    """

    waits = False
    """Whether it waits through the task's context, so that it can't run inside a checkpoint. The requests of a class
    that waits must be the same after a restart, so its expressions can't use `env`."""
    template_keys: ClassVar[tuple[str, ...]] = ()
    """The keys whose texts may contain expressions, if its value in the file is a mapping. Without them, nothing in its
    value is checked for names that do not exist."""
    label: str
    """What it does, in the terms of the file: errors show it. The kind, unless a class sets another."""

    def __init__(self, model: ActionModel, permissions: Permissions) -> None:
        self._permissions = permissions
        self.label = model.kind
        self._timeout = model.timeout
        self._retry = model.retry or RetryModel(attempts=1)

    @staticmethod
    def check(model: ActionModel, permissions: Permissions) -> Iterator[Problem]:  # noqa: ARG004 - for subclasses
        """Yield its problems: what it refers to does not exist or is not allowed, or a value does not fit.

        The path of a problem starts with the kind: `("run", "cwd")`.
        """
        return iter(())

    def scope_with_env(self, call: ActionCall) -> Scope:
        """Return the names that the expressions of an action can use if it does not wait."""
        return {**call.scope, "env": self._permissions.environment()}

    @abstractmethod
    async def perform(self, call: ActionCall) -> Json:
        """Perform the action and return its result.

        Raises:
            ActionFailed, ExpressionFailed: it failed.
        """

    async def run(self, tries: Tries, name: str, scope: Scope) -> ActionResult:
        """Run the action, with its retries. `name` is that of the checkpoint, and unique within the task."""
        backoff = self._retry.backoff
        for number in range(1, self._retry.attempts):
            try_name = _numbered(name, number)
            outcome = await tries.run_try(self, try_name, scope)
            if outcome.error is None or outcome.error["kind"] not in self._retry.on:
                return outcome
            if backoff:
                await tries.pause(round(backoff, 3), f"{try_name} backoff")
            backoff = min(backoff * self._retry.factor, MAX_BACKOFF)
        return await tries.run_try(self, _numbered(name, self._retry.attempts), scope)

    async def try_once(self, call: ActionCall) -> ActionResult:
        """Run one try, unless it is recorded already."""
        perform = partial(self._perform_and_record, call)
        if self.waits:
            # It has its own checkpoints, and is recorded when they have an outcome.
            return ActionResult.from_record(await _record_with_timeout(self._timeout, call, perform))
        return ActionResult.from_record(await call.task.step(call.name, perform))

    async def _perform_and_record(self, call: ActionCall) -> Json:
        """Perform the action, and return the record of its outcome."""
        # The timeout of an action that waits through the task's context is durable, in `_record_with_timeout`: it also
        # runs while the task is parked or no process runs.
        limit = asyncio.timeout(None if self.waits else self._timeout)
        try:
            async with limit:
                result = await self.perform(call)
            size = len(encode(result, what="its result"))
        except TimeoutError:
            if not limit.expired():
                raise
            return _timeout_record(self._timeout)
        except (ActionFailed, ExpressionFailed, TooLarge, NotJson) as error:
            return self._failure_record(ActionResult.kind_of(error), str(error))
        except Exception as error:
            if isinstance(error, RaincheckError) and not isinstance(error, InvalidValue):
                # The attempt or the store failed, not the action.
                raise
            # A value that the action could not prepare for: a step has to fail for it, so that it is compensated.
            error_id = secrets.token_hex(4)
            logger.exception("step %s: %s (error %s)", call.name, self.label, error_id)
            message = f"its values can't be used ({type(error).__name__}): ask the operator about error {error_id}"
            return self._failure_record("failed", message)
        if size > MAX_RESULT_BYTES:
            message = f"its result has {size:,} bytes, but only {MAX_RESULT_BYTES:,} are allowed: write it to a file"
            return ActionResult.failed("too-large", message).record
        return ActionResult(result).record

    def _failure_record(self, kind: ErrorKind, message: str) -> Json:
        """Return the record of a failure, without the values of the environment variables that the file may read."""
        # Redacted before it is clipped, which could cut a value in half.
        return ActionResult.failed(kind, self._permissions.redact(message)).record


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name} try {number}"


async def _record_with_timeout(
    timeout: float | None,  # noqa: ASYNC109 - None is no timeout
    call: ActionCall,
    work: Callable[[], Awaitable[Json]],
) -> Json:
    """Record the outcome of work that waits, or that it timed out, and return the record."""
    task = call.task
    if timeout is None:
        return await task.step(call.name, partial(return_record, await work()))
    running = asyncio.ensure_future(work())
    timer = asyncio.ensure_future(task.sleep(timeout, name=f"{call.name} timeout"))
    try:
        await asyncio.wait([running, timer], return_when=asyncio.FIRST_COMPLETED)
        is_late = not running.done()
        record = _timeout_record(timeout) if is_late else running.result()
        # Recorded before the work is cancelled, since an attempt that resumes must repeat every request made before.
        recorded = await task.step(call.name, partial(return_record, record))
        if is_late:
            # Its input request, if it made one.
            await WorkflowContext(task).withdraw_input(call.name)
        return recorded
    finally:
        running.cancel()
        timer.cancel()
        await asyncio.gather(running, timer, return_exceptions=True)


def _timeout_record(seconds: float | None) -> Json:
    return ActionResult.failed("timeout", f"it took longer than {seconds:g} s").record


async def return_record(record: R) -> R:
    """Return a record that is already known, as the work of a checkpoint."""
    return record
