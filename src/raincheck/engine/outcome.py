"""What a body's ending means for its task: what callers may read of it, and what the operator should.

An error that nobody foresaw may hold anything (a password in a URL, say), so callers get an id instead, under which
the log and the history have the whole of it.
"""

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

from raincheck.core.commands import Complete, Fail
from raincheck.core.payload import Json, encode
from raincheck.core.records import Task
from raincheck.core.retry import OnInterrupt
from raincheck.engine.frames import plain_text
from raincheck.engine.isolated import IsolatedError, ProcessDied
from raincheck.engine.tools import TaskTool
from raincheck.errors import (
    CheckpointMismatch,
    ConfigurationError,
    InvalidValue,
    ProtocolError,
    QuotaExceeded,
    TaskFailed,
    ToolError,
)
from raincheck.tracebacks import format_traceback, text_logger

logger = text_logger(__name__)

TRACEBACK_LIMIT = 32_000
"""Characters of a traceback that are kept, from its end."""

OUR_OWN = (CheckpointMismatch, TaskFailed, InvalidValue, QuotaExceeded)
"""Errors whose words are ours and say what to do: callers may read them, and trying again would not help."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Says what becomes of one attempt. `chance` draws a random number for the wait before the next."""

    task: Task
    tool: TaskTool
    chance: Callable[[], float]
    traceback_limit: int = TRACEBACK_LIMIT
    """So that what is told of an error is never too much to be kept."""

    def reported(self, error: ToolError) -> Complete:
        """The body raised an error for its caller to read: that is its answer."""
        content: Json = {"message": str(error)} if error.content is None else error.content  # type: ignore[assignment] # encode refuses what is not JSON
        result = encode(content, what=f"the error of tool {self.tool.name!r}")
        return Complete(self.task.fence, result, is_error=True, status_message=str(error))

    def refused(self, error: ProtocolError) -> Fail:
        """The body ended its task with an error in the protocol's own words."""
        message = plain_text(str(error))
        told: dict[str, object] = {"kind": "protocol", "code": error.code, "message": message}
        if error.data is not None:
            told["data"] = error.data
        shown = encode(cast("Json", told), what=f"the error of tool {self.tool.name!r}")
        return Fail(self.task.fence, shown, message, retryable=False, chance=self.chance())

    def timed_out(self) -> Fail:
        """The attempt took too long."""
        message = f"attempt {self.task.fence} took longer than {self.tool.attempt_timeout:g} s"
        logger.warning("task %s: %s (tool %s)", self.task.shown_id, message, self.tool.name)
        error = encode({"kind": "timeout", "message": message})
        retryable = self._may_be_cut_off and issubclass(TimeoutError, self.tool.retry_on)
        return Fail(self.task.fence, error, message, retryable=retryable, chance=self.chance())

    def raised(self, error: BaseException) -> Fail:
        """The body raised an error that it should not have."""
        error_id = secrets.token_hex(4)
        text = plain_text(format_traceback(error))
        logger.error(
            "task %s: attempt %d of tool %s raised %s (error %s)",
            self.task.shown_id,
            self.task.fence,
            self.tool.name,
            type(error).__name__,
            error_id,
            extra={"traceback": text},
        )
        if isinstance(error, OUR_OWN):
            message, retryable = plain_text(str(error)), False
        else:
            message = f"tool {self.tool.name!r} failed unexpectedly: its operator finds it as error {error_id}"
            retryable = _is_among(error, self.tool.retry_on)
            retryable &= self._may_be_cut_off or not isinstance(error, ProcessDied)
            # A program that is put together wrongly is so the next time, too.
            retryable &= not isinstance(error, ConfigurationError)
        shown = encode({"kind": "error", "message": message, "error_id": error_id})
        told = {"error_id": error_id, "type": type(error).__name__}
        detail = encode({**told, "traceback": text[-self.traceback_limit :]})
        return Fail(self.task.fence, shown, message, retryable=retryable, chance=self.chance(), detail=detail)

    @property
    def _may_be_cut_off(self) -> bool:
        """Whether a body that was cut off in the middle, by us or by a crash, may be run again."""
        return self.task.retry.on_interrupt is OnInterrupt.RETRY


def unwrapped(error: BaseException) -> BaseException:
    """What a group of errors is about, if that is one thing: branches of a body raise groups."""
    if isinstance(error, BaseExceptionGroup):
        leaves = list(_leaves(cast("BaseExceptionGroup[BaseException]", error)))
        if len(leaves) == 1 or all(isinstance(leaf, ToolError) for leaf in leaves):
            return leaves[0]
    return cast("BaseException", error)


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(cast("BaseExceptionGroup[BaseException]", error))
        else:
            yield error


def _is_among(error: BaseException, types: tuple[type[BaseException], ...]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_among(leaf, types) for leaf in _leaves(cast("BaseExceptionGroup[BaseException]", error)))
    if isinstance(error, IsolatedError):
        return any(error.is_a(one) for one in types)
    return isinstance(error, types)
