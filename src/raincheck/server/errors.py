"""Errors of ours as errors of the protocol: what was wrong, and what to do; never what is inside."""

import json
import math
from collections.abc import Mapping
from typing import Any

from mcp.shared.exceptions import MCPError

from raincheck.core.owner import Owner
from raincheck.core.records import View
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
from raincheck.wire.fields import refusal

logger = text_logger(__name__)

LONGEST_SHOWN = 20
"""Digits of a number that is told to be wrong."""

CALLERS_FAULT = (TaskNotFound, InvalidValue, IdempotencyConflict, IllegalTransition)


def missing_capability() -> MCPError:
    """The caller did not say, with this request, that it knows tasks."""
    return MCPError(*v2026.missing_capability())


def invalid_params(message: str) -> MCPError:
    return MCPError(errors.INVALID_PARAMS, message)


def json_kind(value: object) -> str:
    """What something is that was sent, in words that every caller knows."""
    match value:
        case None:
            return "null"
        case bool() | float():
            return json.dumps(value)
        case int():
            return str(value) if abs(value) < 10**LONGEST_SHOWN else "a very large number"
        case str():
            return "a string"
        case Mapping():
            return "an object"
        case _:
            return "an array"


def over_limit(message: str, limit: str, most: int | None, retry_after: float | None) -> MCPError:
    """The caller asks for more than its share, and may ask again later."""
    data: dict[str, Any] = {"limit": limit}
    if most is not None:
        data["most"] = most
    if retry_after is not None:
        data["retryAfterMs"] = math.ceil(retry_after * 1_000)
    return MCPError(errors.OVER_LIMIT, message, data)


def as_protocol_error(error: RaincheckError) -> MCPError:
    """What to tell a caller of an error of ours."""
    if isinstance(error, QuotaExceeded):
        after = None if error.retry_after is None else error.retry_after.total_seconds()
        return over_limit(str(error), error.which, error.limit, after)
    if isinstance(error, CancelRefused):
        return MCPError(errors.INVALID_PARAMS, str(error), refusal(error))
    if isinstance(error, CALLERS_FAULT):
        return invalid_params(str(error))
    # The store, or how the program is put together: its operator's business.
    if isinstance(error, StoreUnavailable):
        logger.warning("a request for a task could not be served: %s", error)
    else:
        logger.error("a request for a task could not be served", exc_info=error)
    return MCPError(errors.INTERNAL_ERROR, errors.AWAY)


def crashed(method: str, error: Exception) -> MCPError:
    """Something went wrong that should not have."""
    logger.error("%s could not be served: %s", method, type(error).__name__, exc_info=error)
    return MCPError(errors.INTERNAL_ERROR, "Internal server error")


class InProtocolWords:
    """Tells the caller of errors in the protocol's words. Every request enters it, so it is no generator: those cost.

    Raises:
        MCPError: instead of any other.
    """

    __slots__ = ("_method",)

    def __init__(self, method: str) -> None:
        self._method = method

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, MCPError):
            raise _told(self._method, error) from error


def _told(method: str, error: Exception) -> MCPError:
    # If it is not ours, it comes from the author's code, such as what makes an idempotency key: what that says is not
    # for callers.
    return as_protocol_error(error) if isinstance(error, RaincheckError) else crashed(method, error)


class Reading:
    """Read what is kept of a task. If it can't be read, that is not its owner's fault.

    Raises:
        MCPError: it can't.
    """

    __slots__ = ("_view",)

    def __init__(self, view: View) -> None:
        self._view = view

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, InvalidValue):
            raise crashed(f"task {self._view.task.shown_id}", error) from error


class Refusing:
    """As `InProtocolWords`, and tells the audit log of every refusal.

    Raises:
        MCPError: instead of any other.
    """

    __slots__ = ("_ctx", "_owner")

    def __init__(self, ctx: AnyContext, owner: Owner) -> None:
        self._ctx = ctx
        self._owner = owner

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if not isinstance(error, Exception):
            return
        refusal = error if isinstance(error, MCPError) else _told(self._ctx.method, error)
        _note(self._ctx, self._owner, refusal)
        if refusal is not error:
            raise refusal from error


def _note(ctx: AnyContext, owner: Owner, refusal: MCPError) -> None:
    params = ctx.params or {}
    task_id = params.get("taskId")
    tool = params.get("name") if ctx.method == "tools/call" else None
    told = {"task_id": task_id, "tool": tool}
    texts = {name: value for name, value in told.items() if isinstance(value, str)}
    audit.note(audit.REFUSED, owner, method=ctx.method, code=refusal.error.code, **texts)
