"""Doing an action durably: each try is a checkpoint, whatever comes of it, so that none is made twice.

What is recorded of a try is `{"ok": result}` or `{"error": {"kind": …, "message": …}}`. An attempt that goes on after a
crash finds the same results and the same errors, and so comes to the same place.

Where the tries of a step come from: from doing them, or from what is on record of them.

Waiting by means of a task, for at most so long, however often the task is parked meanwhile.

The kinds of actions.
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
from raincheck.engine.execution.local_api import local_desk
from raincheck.errors import NotJson, TooLarge
from raincheck.workflows.actions.base import Action, ActionFailed, Occasion, Set
from raincheck.workflows.actions.call import Call
from raincheck.workflows.actions.http import Http
from raincheck.workflows.actions.python import Python
from raincheck.workflows.actions.run import Run
from raincheck.workflows.actions.sample import sampling
from raincheck.workflows.actions.wait import Ask, Sleep, Workflow
from raincheck.workflows.expressions.template import ExpressionFailed, Scope
from raincheck.workflows.parsing.models import ActionModel, ErrorKind, RetryModel
from raincheck.workflows.permissions import Surroundings


class Tries(Protocol):
    """What a step needs to come to its end."""

    async def outcome(self, doing: "Doing", name: str, scope: Scope) -> "Tried":
        """What came of the try of this name."""
        ...

    async def pause(self, seconds: float, name: str) -> None:
        """Let time pass before the next one."""
        ...

    async def keep(self, artifact: str | None, result: Json) -> None:
        """Keep the result under this name, if there is one.

        Raises:
            ActionFailed: it is too large.
        """
        ...


class TriesMade:
    """Tries as they are made by a task, each once."""

    def __init__(self, task: TaskContext) -> None:
        self._task = task

    async def outcome(self, doing: "Doing", name: str, scope: Scope) -> "Tried":
        return await doing.try_once(Occasion(self._task, name, scope))

    async def pause(self, seconds: float, name: str) -> None:
        await self._task.sleep(seconds, name=name)

    async def keep(self, artifact: str | None, result: Json) -> None:
        if artifact is None:
            return
        try:
            await self._task.artifact(artifact, result)
        except TooLarge as error:
            raise ActionFailed("too-large", str(error)) from error


def action_of(model: ActionModel, surroundings: Surroundings) -> Action:
    """What the model says is to be done."""
    # Whatever its kind says of it. Its model has seen to that it is there.
    said: Any = getattr(model, model.kind)
    match model.kind:
        case "run":
            return Run(said, surroundings)
        case "http":
            return Http(said, surroundings)
        case "python":
            return Python(said, model.arguments, surroundings)
        case "call":
            return Call(said, surroundings)
        case "ask":
            return Ask(said)
        case "sample":
            return sampling(said)
        case "workflow":
            return Workflow(said, model.arguments)
        case "set":
            return Set(said, surroundings)
        case "sleep":
            return Sleep(said)
        case _:
            assert_never(model.kind)


async def recorded_in_time(seconds: float | None, occasion: Occasion, work: Callable[[], Awaitable[Json]]) -> Json:
    """Record what comes of something that waits, or that nothing did in time, and return what is on record."""
    task = occasion.task
    if seconds is None:
        return await task.step(occasion.name, partial(_same, await work()))
    waiting = asyncio.ensure_future(work())
    clock = asyncio.ensure_future(task.sleep(seconds, name=f"{occasion.name} timeout"))
    try:
        await asyncio.wait([waiting, clock], return_when=asyncio.FIRST_COMPLETED)
        is_late = not waiting.done()
        record = _too_late(seconds) if is_late else waiting.result()
        # Before the work is cancelled: an attempt that goes on must have asked for all that was asked for before.
        recorded = await task.step(occasion.name, partial(_same, record))
        if is_late:
            # What it asked, if it did.
            await local_desk(task).withdraw(occasion.name)
        return recorded
    finally:
        waiting.cancel()
        clock.cancel()
        await asyncio.gather(waiting, clock, return_exceptions=True)


def _too_late(seconds: float) -> Json:
    return {"error": {"kind": "timeout", "message": f"it took longer than {seconds:g} s"}}


async def _same(record: Json) -> Json:
    return record


RESULT_LIMIT = Limits().step - 10_000
"""Bytes of JSON that a result may have: what a checkpoint holds, and room for what is around it."""

LONGEST_BACKOFF = 3_600.0
"""Seconds between two tries, at most."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of something: a result, or an error of a kind."""

    result: Json = None
    kind: str | None = None
    message: str = ""

    @property
    def is_ok(self) -> bool:
        return self.kind is None

    @property
    def error(self) -> Json:
        """As expressions see it."""
        return None if self.kind is None else {"kind": self.kind, "message": self.message}

    @property
    def record(self) -> Json:
        return {"ok": self.result} if self.kind is None else {"error": self.error}

    @classmethod
    def of(cls, record: Json) -> "Tried":
        """From what was recorded."""
        said = cast("Mapping[str, Json]", record)
        if "ok" in said:
            return cls(said["ok"])
        error = cast("Mapping[str, Json]", said["error"])
        return cls(None, str(error["kind"]), str(error["message"]))


def failed(kind: ErrorKind, message: str) -> Tried:
    return Tried(None, kind, clip(message) or "")


class Doing:
    """An action with its timeout and its tries."""

    def __init__(self, model: ActionModel, surroundings: Surroundings) -> None:
        self.action = action_of(model, surroundings)
        self._timeout = model.timeout
        self._retry = model.retry or RetryModel(attempts=1)

    async def outcome(self, tries: Tries, name: str, scope: Scope) -> Tried:
        """Do it, as often as it may be tried. `name` is that of the checkpoint, and no other of the task has it."""
        wait = self._retry.backoff
        for number in range(1, self._retry.attempts):
            this = _numbered(name, number)
            outcome = await tries.outcome(self, this, scope)
            if outcome.is_ok or outcome.kind not in self._retry.on:
                return outcome
            if wait:
                await tries.pause(round(wait, 3), f"{this} backoff")
            wait = min(wait * self._retry.factor, LONGEST_BACKOFF)
        return await tries.outcome(self, _numbered(name, self._retry.attempts), scope)

    async def try_once(self, occasion: Occasion) -> Tried:
        """Try it once, if that was not done before."""
        do = partial(_recorded, self._perform, occasion)
        if self.action.waits:
            # It has checkpoints of its own, and is recorded when they have come to something.
            return Tried.of(await recorded_in_time(self._timeout, occasion, do))
        return Tried.of(await occasion.task.step(occasion.name, do))

    async def _perform(self, occasion: Occasion) -> Json:
        # What waits by means of its task has time that goes on while the task is parked, or no process runs.
        limit = asyncio.timeout(None if self.action.waits else self._timeout)
        try:
            async with limit:
                return await self.action.perform(occasion)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ActionFailed("timeout", f"it took longer than {self._timeout:g} s") from error


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name} try {number}"


async def _recorded(perform: Callable[[Occasion], Awaitable[Json]], occasion: Occasion) -> Json:
    """What is to be recorded of it."""
    try:
        result = await perform(occasion)
        size = len(encode(result, what="its result"))
    except ActionFailed as error:
        return failed(error.kind, str(error)).record
    except ExpressionFailed as error:
        return failed("expression", str(error)).record
    except TooLarge as error:
        return failed("too-large", str(error)).record
    except NotJson as error:
        return failed("failed", str(error)).record
    if size > RESULT_LIMIT:
        message = f"its result has {size:,} bytes, and {RESULT_LIMIT:,} are allowed: write it to a file"
        return failed("too-large", message).record
    return Tried(result).record
