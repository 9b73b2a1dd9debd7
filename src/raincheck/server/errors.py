"""Convert raincheck errors to MCP errors that name the problem and the remedy, and reveal no internals."""

import json
import math
from collections.abc import Mapping
from typing import Any

from mcp.shared.exceptions import MCPError

from raincheck.core.owner import Owner
from raincheck.errors import (
    CancelRefused,
    IdempotencyConflict,
    IllegalTransition,
    InvalidValue,
    QuotaExceeded,
    RaincheckError,
    StoreUnavailable,
    TaskNotFound,
)
from raincheck.server import audit
from raincheck.server.sdk_compat import AnyContext
from raincheck.tracebacks import text_logger
from raincheck.wire import errors, v2026
from raincheck.wire.fields import describe_refusal

logger = text_logger(__name__)

MAX_SHOWN_DIGITS = 20
"""Most digits of a rejected number that an error message repeats."""

CALLER_ERRORS = (TaskNotFound, InvalidValue, IdempotencyConflict, IllegalTransition)


def missing_capability() -> MCPError:
    """Return the error for a request that did not declare the tasks capability."""
    return MCPError(*v2026.missing_capability())


def invalid_params(message: str) -> MCPError:
    return MCPError(errors.INVALID_PARAMS, message)


def describe_json(value: object) -> str:
    """Describe a received value by its JSON type, in terms that every caller knows."""
    match value:
        case None:
            return "null"
        case bool() | float():
            return json.dumps(value)
        case int():
            return str(value) if abs(value) < 10**MAX_SHOWN_DIGITS else "a very large number"
        case str():
            return "a string"
        case Mapping():
            return "an object"
        case _:
            return "an array"


def over_limit(message: str, limit: str, max_count: int | None, retry_after: float | None) -> MCPError:
    """Return the error for a request over a quota or rate limit, which the caller may retry later."""
    data: dict[str, Any] = {"limit": limit}
    if max_count is not None:
        data["most"] = max_count
    if retry_after is not None:
        data["retryAfterMs"] = math.ceil(retry_after * 1_000)
    return MCPError(errors.QUOTA_EXCEEDED, message, data)


def as_protocol_error(error: Exception, method: str) -> MCPError:
    """Convert an error in serving a method to the protocol error for the caller."""
    if isinstance(error, MCPError):
        return error
    if not isinstance(error, RaincheckError):
        # From the author's code, such as a function that makes an idempotency key. Its text is not for callers.
        return internal_error(method, error)
    if isinstance(error, QuotaExceeded):
        retry_after = None if error.retry_after is None else error.retry_after.total_seconds()
        return over_limit(str(error), error.which, error.limit, retry_after)
    if isinstance(error, CancelRefused):
        return MCPError(errors.INVALID_PARAMS, str(error), describe_refusal(error))
    if isinstance(error, CALLER_ERRORS):
        return invalid_params(str(error))
    # A store or configuration problem concerns the operator, not the caller.
    if isinstance(error, StoreUnavailable):
        logger.warning("a request for a task could not be served: %s", error)
    else:
        logger.error("a request for a task could not be served", exc_info=error)
    return MCPError(errors.INTERNAL_ERROR, errors.STORE_UNAVAILABLE)


def internal_error(method: str, error: Exception) -> MCPError:
    """Log an unexpected exception and return a generic internal error."""
    logger.error("%s could not be served: %s", method, type(error).__name__, exc_info=error)
    return MCPError(errors.INTERNAL_ERROR, "Internal server error")


class ErrorMapping:
    """Context manager that converts exceptions to protocol errors. With an owner, each is written to the audit log.

    Every request enters it, so it is a class: a context manager made of a generator costs more.

    Raises:
        MCPError: in place of any other exception.
    """

    __slots__ = ("_ctx", "_owner")

    def __init__(self, ctx: AnyContext, owner: Owner | None = None) -> None:
        self._ctx = ctx
        self._owner = owner

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, Exception):
            refusal = as_protocol_error(error, self._ctx.method)
            if self._owner is not None:
                _log_refusal(self._ctx, self._owner, refusal)
            if refusal is not error:
                raise refusal from error


def _log_refusal(ctx: AnyContext, owner: Owner, refusal: MCPError) -> None:
    params = ctx.params or {}
    tool = params.get("name") if ctx.method == "tools/call" else None
    named = {"task_id": params.get("taskId"), "tool": tool}
    valid = {name: value for name, value in named.items() if isinstance(value, str)}
    audit.log_event(audit.REFUSED, owner, method=ctx.method, code=refusal.error.code, **valid)
