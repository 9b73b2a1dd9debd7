"""Send requests to a caller, and poll the task with which the caller may answer.

A caller may answer with its own task if it declared that it does.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from mcp.shared.dispatcher import CallOptions, Outbound
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types import REQUEST_TIMEOUT, ClientTasksCapability

from raincheck._async import run_to_completion
from raincheck.clock import Clock
from raincheck.core.owner import Owner
from raincheck.server.sdk_compat import AnyContext, channel_of, connection_of, is_owned_by
from raincheck.wire import errors
from raincheck.wire.fields import CallerRequest

DEFAULT_POLL_INTERVAL = 1.0
MIN_POLL_INTERVAL = 0.05
MAX_POLL_INTERVAL = 60.0
"""Seconds, whatever the caller suggests."""

WITHDRAW_TIMEOUT = 1.0
"""Seconds to notify a caller that its answer is not needed any more."""

RESPONSE_TIMEOUT = 30.0
"""Seconds for a response that needs no user."""

MAX_FETCH_TRIES = 3
"""Consecutive requests without an answer, after which a caller counts as gone."""

TERMINAL = ("completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class CallerLink:
    """Link to a caller that waits."""

    ctx: AnyContext
    owner: Owner

    @property
    def channel(self) -> Outbound | None:
        """The channel to the caller at present; None if there is none."""
        return channel_of(self.ctx, may_use_connection=is_owned_by(connection_of(self.ctx), self.owner))


async def request_input(
    request: CallerRequest, line: CallerLink, clock: Clock, on_task: Callable[[], None]
) -> dict[str, Any]:
    """Send a request to a caller, and return its answer, without the fields that belong to the message alone.

    `on_task` is called if the caller answers with a task: from then on polls show that the caller is there, even if its
    own request is over.

    Raises:
        MCPError: the caller answers with an error, can't be reached, or is gone.
    """
    params = dict(request["params"])
    if _accepts_task(line, request["method"]):
        params["task"] = {}
    answer = await _ask(line, request["method"], params)
    task = answer.get("task")
    if "task" in params and isinstance(task, Mapping):
        # The caller may also answer at once.
        on_task()
        answer = await _poll(line, cast("Mapping[str, Any]", task), clock)
    return {name: value for name, value in answer.items() if name not in ("_meta", "resultType")}


async def _ask(line: CallerLink, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Send a request. If it is cancelled, notify the caller, with the task that asked."""
    # No other client on the connection can guess the id, and answer in place of the one that is asked.
    request_id = f"raincheck-{secrets.token_hex(8)}"
    try:
        return await _send(line, method, params, {"request_id": request_id, "cancel_on_abandon": False})
    except asyncio.CancelledError:
        await run_to_completion(_withdraw(request_id, params.get("_meta"), line))
        raise


async def _send(line: CallerLink, method: str, params: Mapping[str, Any], options: CallOptions) -> dict[str, Any]:
    # The request that the question is sent on may be over by now, and its stream closed.
    channel = line.channel
    if channel is None:
        raise NoBackChannelError(method)
    return await channel.send_raw_request(method, params, options)


async def _withdraw(request_id: str, meta: object, line: CallerLink) -> None:
    channel = line.channel
    told = {"requestId": request_id, "reason": "no answer is needed any more"} | ({"_meta": meta} if meta else {})
    if channel is not None:
        with suppress(TimeoutError):
            await asyncio.wait_for(channel.notify("notifications/cancelled", told), WITHDRAW_TIMEOUT)


def _accepts_task(line: CallerLink, method: str) -> bool:
    tasks = _tasks_of(line)
    offered: Any = {} if tasks is None else tasks.model_dump(by_alias=True, exclude_none=True).get("requests", {})
    kind, _, what = method.partition("/")
    return what in offered.get(kind, {})


def _tasks_of(line: CallerLink) -> ClientTasksCapability | None:
    capabilities = line.ctx.session.client_capabilities
    return None if capabilities is None else capabilities.tasks


async def _poll(line: CallerLink, task: Mapping[str, Any], clock: Clock) -> dict[str, Any]:
    task_id = task.get("taskId")
    if not isinstance(task_id, str):
        raise MCPError(errors.INVALID_PARAMS, "the caller answered with a task that has no id")
    try:
        while task.get("status") not in TERMINAL:
            await clock.sleep(_pause(task.get("pollInterval")))
            task = await _fetch(line, "tasks/get", task_id)
        return await _fetch(line, "tasks/result", task_id)
    except asyncio.CancelledError:
        await run_to_completion(_cancel_task(line, task_id))
        raise


async def _fetch(line: CallerLink, method: str, task_id: str) -> dict[str, Any]:
    """Fetch a task of the caller. Repeat a request without an answer: a stream may break meanwhile."""
    for _ in range(MAX_FETCH_TRIES):
        try:
            return await _send(line, method, {"taskId": task_id}, {"timeout": RESPONSE_TIMEOUT})
        except MCPError as error:
            if error.error.code != REQUEST_TIMEOUT:
                raise
    raise NoBackChannelError(method)


def _pause(suggested: object) -> float:
    """Return the seconds until the next poll."""
    is_number = isinstance(suggested, int | float) and not isinstance(suggested, bool) and suggested > 0
    # Bounded first: an integer may be too large for a float.
    seconds = min(cast("float", suggested), MAX_POLL_INTERVAL * 1_000) / 1_000 if is_number else DEFAULT_POLL_INTERVAL
    return max(seconds, MIN_POLL_INTERVAL)


async def _cancel_task(line: CallerLink, task_id: str) -> None:
    tasks = _tasks_of(line)
    if tasks is not None and tasks.cancel is not None:
        # The task may have ended, or been deleted.
        with suppress(MCPError):
            await _send(line, "tasks/cancel", {"taskId": task_id}, {"timeout": WITHDRAW_TIMEOUT})
