"""Send requests to a caller, and poll the task if the caller answers with one.

A caller may answer with its own task only if it declared that capability.
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
"""Upper limit in seconds, even if the caller suggests a longer interval."""

WITHDRAW_TIMEOUT = 1.0
"""Seconds allowed for notifying a caller that its answer is no longer needed."""

RESPONSE_TIMEOUT = 30.0
"""Seconds to wait for a response that involves no user."""

MAX_FETCH_TRIES = 3
"""Consecutive unanswered requests after which a caller counts as gone."""

TERMINAL = ("completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class CallerLink:
    """Link to a waiting caller."""

    ctx: AnyContext
    owner: Owner

    @property
    def channel(self) -> Outbound | None:
        """The current channel to the caller; None if there is none."""
        return channel_of(self.ctx, may_use_connection=is_owned_by(connection_of(self.ctx), self.owner))


async def request_input(
    request: CallerRequest, link: CallerLink, clock: Clock, on_task: Callable[[], None]
) -> dict[str, Any]:
    """Send a request to a caller, and return its answer without the fields that belong only to the message.

    `on_task` is called if the caller answers with a task. From then on, polls show that the caller is present, even if
    its own request has ended.

    Raises:
        MCPError: the caller answers with an error, can't be reached, or is gone.
    """
    params = dict(request["params"])
    if _accepts_task(link, request["method"]):
        params["task"] = {}
    answer = await _request(link, request["method"], params)
    task = answer.get("task")
    if "task" in params and isinstance(task, Mapping):
        # A caller that accepts tasks may still answer immediately.
        on_task()
        answer = await _poll(link, cast("Mapping[str, Any]", task), clock)
    return {name: value for name, value in answer.items() if name not in ("_meta", "resultType")}


async def _request(link: CallerLink, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Send a request. If it is cancelled, notify the caller, and name the task that asked."""
    # The id is random, so that no other client on the connection can answer in place of the caller.
    request_id = f"raincheck-{secrets.token_hex(8)}"
    try:
        return await _send(link, method, params, {"request_id": request_id, "cancel_on_abandon": False})
    except asyncio.CancelledError:
        await run_to_completion(_withdraw(request_id, params.get("_meta"), link))
        raise


async def _send(link: CallerLink, method: str, params: Mapping[str, Any], options: CallOptions) -> dict[str, Any]:
    # The request whose stream carries the question may have ended by now, and its stream closed.
    channel = link.channel
    if channel is None:
        raise NoBackChannelError(method)
    return await channel.send_raw_request(method, params, options)


async def _withdraw(request_id: str, meta: object, link: CallerLink) -> None:
    channel = link.channel
    params = {"requestId": request_id, "reason": "the answer is no longer needed"} | ({"_meta": meta} if meta else {})
    if channel is not None:
        with suppress(TimeoutError):
            await asyncio.wait_for(channel.notify("notifications/cancelled", params), WITHDRAW_TIMEOUT)


def _accepts_task(link: CallerLink, method: str) -> bool:
    tasks = _tasks_of(link)
    offered: Any = {} if tasks is None else tasks.model_dump(by_alias=True, exclude_none=True).get("requests", {})
    group, _, operation = method.partition("/")
    return operation in offered.get(group, {})


def _tasks_of(link: CallerLink) -> ClientTasksCapability | None:
    capabilities = link.ctx.session.client_capabilities
    return None if capabilities is None else capabilities.tasks


async def _poll(link: CallerLink, task: Mapping[str, Any], clock: Clock) -> dict[str, Any]:
    task_id = task.get("taskId")
    if not isinstance(task_id, str):
        raise MCPError(
            errors.INVALID_PARAMS,
            "the response contains a task without a taskId: respond with the result, or with a task that has an id",
        )
    try:
        while task.get("status") not in TERMINAL:
            await clock.sleep(_pause(task.get("pollInterval")))
            task = await _fetch(link, "tasks/get", task_id)
        return await _fetch(link, "tasks/result", task_id)
    except asyncio.CancelledError:
        await run_to_completion(_cancel_task(link, task_id))
        raise


async def _fetch(link: CallerLink, method: str, task_id: str) -> dict[str, Any]:
    """Fetch a task of the caller. Repeat an unanswered request, because its stream may have broken."""
    for _ in range(MAX_FETCH_TRIES):
        try:
            return await _send(link, method, {"taskId": task_id}, {"timeout": RESPONSE_TIMEOUT})
        except MCPError as error:
            if error.error.code != REQUEST_TIMEOUT:
                raise
    raise NoBackChannelError(method)


def _pause(suggested: object) -> float:
    """Return the seconds until the next poll."""
    is_number = isinstance(suggested, int | float) and not isinstance(suggested, bool) and suggested > 0
    # Clamp before dividing: an integer may be too large for a float.
    seconds = min(cast("float", suggested), MAX_POLL_INTERVAL * 1_000) / 1_000 if is_number else DEFAULT_POLL_INTERVAL
    return max(seconds, MIN_POLL_INTERVAL)


async def _cancel_task(link: CallerLink, task_id: str) -> None:
    tasks = _tasks_of(link)
    if tasks is not None and tasks.cancel is not None:
        # The task may have ended, or been deleted.
        with suppress(MCPError):
            await _send(link, "tasks/cancel", {"taskId": task_id}, {"timeout": WITHDRAW_TIMEOUT})
