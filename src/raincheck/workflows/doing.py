"""Doing an action durably: each try is a checkpoint, whatever comes of it, so that none is made twice.

What is recorded of a try is `{"ok": result}` or `{"error": {"kind": …, "message": …}}`. An attempt that goes on after a
crash finds the same results and the same errors, and so comes to the same place.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import cast

from raincheck.core.limits import Limits
from raincheck.core.payload import Json, encode
from raincheck.core.text import clip
from raincheck.errors import NotJson, TooLarge
from raincheck.workflows.action import ActionFailed, Occasion
from raincheck.workflows.action_model import ActionModel, ErrorKind, RetryModel
from raincheck.workflows.expressions import ExpressionFailed, Scope
from raincheck.workflows.kinds import action_of
from raincheck.workflows.surroundings import Surroundings
from raincheck.workflows.tries import Tries
from raincheck.workflows.waiting import recorded_in_time

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
