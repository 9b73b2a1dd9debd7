"""Map the failure of a body to what is stored of it.

An unexpected error may hold anything (a password in a URL, say), so callers get an error id instead of its message,
under which the log and the history have the full error.
"""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from raincheck.core.commands import Complete, Fail
from raincheck.core.policies import Limits, OnInterrupt
from raincheck.core.records import Task
from raincheck.core.values import Json, encode
from raincheck.engine.isolation.process_body import IsolatedError, ProcessDied
from raincheck.engine.isolation.protocol import escape_surrogates
from raincheck.engine.tool import TaskTool
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

draw_jitter = secrets.SystemRandom().random
"""Draw a random number for the backoff."""

TRACEBACK_LIMIT = 32_000
"""Maximum characters of a traceback that are stored, from its end."""

CALLER_READABLE_ERRORS = (CheckpointMismatch, TaskFailed, InvalidValue, QuotaExceeded)
"""Errors with our own messages, which say what to do: callers may read them, and a retry would not help."""


@dataclass(frozen=True, slots=True)
class FailureMapper:
    """Maps the failure of one attempt to a command."""

    task: Task
    tool: TaskTool
    limits: Limits

    def map_tool_error(self, error: ToolError) -> Complete:
        """Map an error that the body raised for its caller: it is the task's result."""
        content: Json = {"message": str(error)} if error.content is None else error.content  # type: ignore[assignment] # encode rejects what is not JSON
        result = encode(content, what=f"the error of tool {self.tool.name!r}")
        return Complete(self.task.attempt_number, result, is_error=True, status_message=str(error))

    def map_protocol_error(self, error: ProtocolError) -> Fail:
        """Map an error that the body raised as a protocol error."""
        message = escape_surrogates(str(error))
        fields: dict[str, object] = {"kind": "protocol", "code": error.code, "message": message}
        if error.data is not None:
            fields["data"] = error.data
        payload = encode(cast("Json", fields), what=f"the error of tool {self.tool.name!r}")
        return Fail(self.task.attempt_number, payload, message, retryable=False, chance=draw_jitter())

    def map_timeout(self) -> Fail:
        """Map an attempt that took too long."""
        message = f"attempt {self.task.attempt_number} took longer than {self.tool.attempt_timeout:g} s"
        logger.warning("task %s: %s (tool %s)", self.task.log_id, message, self.tool.name)
        error = encode({"kind": "timeout", "message": message})
        retryable = self._may_be_cut_off and issubclass(TimeoutError, self.tool.retry_on)
        return Fail(self.task.attempt_number, error, message, retryable=retryable, chance=draw_jitter())

    def map_unexpected_error(self, error: BaseException) -> Fail:
        """Map an unexpected error of the body."""
        error_id = secrets.token_hex(4)
        text = escape_surrogates(format_traceback(error))
        logger.error(
            "task %s: attempt %d of tool %s raised %s (error %s)",
            self.task.log_id,
            self.task.attempt_number,
            self.tool.name,
            type(error).__name__,
            error_id,
            extra={
                "traceback": text,
                "task": self.task.log_id,
                "attempt": self.task.attempt_number,
                "tool": self.tool.name,
                "error_id": error_id,
            },
        )
        if isinstance(error, CALLER_READABLE_ERRORS):
            message, retryable = escape_surrogates(str(error)), False
        else:
            message = f"tool {self.tool.name!r} failed unexpectedly: ask its operator about error {error_id}"
            retryable = _matches_any(error, self.tool.retry_on)
            retryable &= self._may_be_cut_off or not isinstance(error, ProcessDied)
            # A configuration error recurs on every attempt.
            retryable &= not isinstance(error, ConfigurationError)
        payload = encode({"kind": "error", "message": message, "error_id": error_id})
        # Within the size limit of the detail: a character takes up to six bytes in JSON.
        traceback = text[-min(TRACEBACK_LIMIT, self.limits.outcome // 8) :]
        detail = {"error_id": error_id, "type": type(error).__name__, "traceback": traceback}
        fence, chance = self.task.attempt_number, draw_jitter()
        return Fail(fence, payload, message, retryable=retryable, chance=chance, detail=encode(detail))

    @property
    def _may_be_cut_off(self) -> bool:
        """Return whether a body that was cut off in the middle, by us or by a crash, may run again."""
        return self.task.retry.on_interrupt is OnInterrupt.RETRY


def unwrap_group(error: BaseException) -> BaseException:
    """Unwrap an error group with a single cause: the branches of a body raise groups."""
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


def _matches_any(error: BaseException, types: tuple[type[BaseException], ...]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_matches_any(leaf, types) for leaf in _leaves(cast("BaseExceptionGroup[BaseException]", error)))
    if isinstance(error, IsolatedError):
        return any(error.is_a(kind) for kind in types)
    return isinstance(error, types)
