"""Requests to a caller, which may answer them with a task of its own, if it said that it does: then that is polled."""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from mcp.shared.dispatcher import CallOptions, Outbound
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types import REQUEST_TIMEOUT, ClientTasksCapability

from raincheck._async import see_through
from raincheck.clock import Clock
from raincheck.core.owner import Owner
from raincheck.server.sdk_compat import AnyContext, channel_of, connection_of, is_theirs
from raincheck.wire import errors
from raincheck.wire.fields import Request

USUAL_POLL = 1.0
SHORTEST_POLL = 0.05
LONGEST_POLL = 60.0
"""Seconds, whatever the caller suggests."""

WITHIN = 1.0
"""Seconds to tell a caller that what it was asked is not needed any more."""

ANSWERED_WITHIN = 30.0
"""Seconds for an answer that a caller need not think about."""

MOST_TRIES = 3
"""Requests in a row that are not answered, after which a caller is taken to be gone."""

TERMINAL = ("completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Line:
    """How a caller is reached that waits."""

    ctx: AnyContext
    owner: Owner

    @property
    def channel(self) -> Outbound | None:
        """Where it can be reached now; None if it can't be."""
        return channel_of(self.ctx, may_use_connection=is_theirs(connection_of(self.ctx), self.owner))


async def put(request: Request, line: Line, clock: Clock, has_task: Callable[[], None]) -> dict[str, Any]:
    """Put a request to a caller, and wait for its answer, without what belongs to the message alone.

    `has_task` is told if it answers with a task: from then on it is heard of, though its request may be over.

    Raises:
        MCPError: the caller answers with an error, or can't be reached, or is not there any more.
    """
    params = dict(request["params"])
    if _takes_tasks(line, request["method"]):
        params["task"] = {}
    answer = await _ask(line, request["method"], params)
    task = answer.get("task")
    if "task" in params and isinstance(task, Mapping):
        # It may also answer at once.
        has_task()
        answer = await _poll(line, cast("Mapping[str, Any]", task), clock)
    return {name: value for name, value in answer.items() if name not in ("_meta", "resultType")}


async def _ask(line: Line, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Send a request. If it is given up, the caller is told so, and of which task it was."""
    # Nobody else on the connection can guess it, and answer in the place of who was asked.
    request_id = f"raincheck-{secrets.token_hex(8)}"
    try:
        return await _send(line, method, params, {"request_id": request_id, "cancel_on_abandon": False})
    except asyncio.CancelledError:
        await see_through(_withdraw(request_id, params.get("_meta"), line))
        raise


async def _send(line: Line, method: str, params: Mapping[str, Any], options: CallOptions) -> dict[str, Any]:
    # The request that it is asked on may be over by now, and then its stream is, too.
    channel = line.channel
    if channel is None:
        raise NoBackChannelError(method)
    return await channel.send_raw_request(method, params, options)


async def _withdraw(request_id: str, meta: object, line: Line) -> None:
    channel = line.channel
    told = {"requestId": request_id, "reason": "no answer is needed any more"} | ({"_meta": meta} if meta else {})
    if channel is not None:
        with suppress(TimeoutError):
            await asyncio.wait_for(channel.notify("notifications/cancelled", told), WITHIN)


def _takes_tasks(line: Line, method: str) -> bool:
    tasks = _tasks_of(line)
    offered: Any = {} if tasks is None else tasks.model_dump(by_alias=True, exclude_none=True).get("requests", {})
    kind, _, what = method.partition("/")
    return what in offered.get(kind, {})


def _tasks_of(line: Line) -> ClientTasksCapability | None:
    capabilities = line.ctx.session.client_capabilities
    return None if capabilities is None else capabilities.tasks


async def _poll(line: Line, task: Mapping[str, Any], clock: Clock) -> dict[str, Any]:
    task_id = task.get("taskId")
    if not isinstance(task_id, str):
        raise MCPError(errors.INVALID_PARAMS, "the caller answered with a task that has no id")
    try:
        while task.get("status") not in TERMINAL:
            await clock.sleep(_pause(task.get("pollInterval")))
            task = await _fetch(line, "tasks/get", task_id)
        return await _fetch(line, "tasks/result", task_id)
    except asyncio.CancelledError:
        await see_through(_give_up(line, task_id))
        raise


async def _fetch(line: Line, method: str, task_id: str) -> dict[str, Any]:
    """Ask for a task of the caller's, again if nothing comes: a stream may break under the question."""
    for _ in range(MOST_TRIES):
        try:
            return await _send(line, method, {"taskId": task_id}, {"timeout": ANSWERED_WITHIN})
        except MCPError as error:
            if error.error.code != REQUEST_TIMEOUT:
                raise
    raise NoBackChannelError(method)


def _pause(suggested: object) -> float:
    """Seconds until the next poll."""
    is_number = isinstance(suggested, int | float) and not isinstance(suggested, bool) and suggested > 0
    # Bounded first: a whole number may be too large for one with a point.
    seconds = min(cast("float", suggested), LONGEST_POLL * 1_000) / 1_000 if is_number else USUAL_POLL
    return max(seconds, SHORTEST_POLL)


async def _give_up(line: Line, task_id: str) -> None:
    tasks = _tasks_of(line)
    if tasks is not None and tasks.cancel is not None:
        # It may have ended, or be gone.
        with suppress(MCPError):
            await _send(line, "tasks/cancel", {"taskId": task_id}, {"timeout": WITHIN})
