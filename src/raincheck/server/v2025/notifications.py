"""Push the status and progress of tasks to callers of 2025-11-25, for as long as their connection lasts.

Notifications for a task are sent on the stream of a `tasks/result` request that waits for the task. If there is none,
they are sent on the connection's own stream. Callers must not rely on notifications: they poll.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast

from mcp.server.connection import Connection
from mcp.shared.dispatcher import Outbound

from raincheck.core.records import Task, TaskId
from raincheck.errors import RaincheckError
from raincheck.server.runtime import ServerRuntime
from raincheck.server.sdk_compat import AnyContext, connection_of, is_answered, is_owned_by, stream_of
from raincheck.server.shared_follower import SharedFollower
from raincheck.tracebacks import text_logger
from raincheck.wire import v2025

logger = text_logger(__name__)

MAX_TASKS_PER_CONNECTION = 1_000
"""Maximum number of tasks that are pushed to one connection at once. Callers can poll all others."""

ANSWER_POLL_INTERVAL = 0.01
"""Seconds between checks of whether a caller has received its task."""

PUSHES_KEY = "raincheck/pushed"
"""Key in a connection's state for the tasks that are pushed to it."""


class _TaskPush:
    """One task that is pushed to one connection."""

    def __init__(self, task: Task, connection: Connection, token: str | int | None) -> None:
        self.task = task
        self.connection = connection
        self.token = token
        self.streams = list[Outbound]()
        """Streams of requests that wait for the task."""
        self.has_own_stream = connection.has_standalone_channel and is_owned_by(connection, task.owner)
        self.push_task: asyncio.Future[None] | None = None

    async def send(self, method: str, params: object) -> None:
        if self.streams or self.has_own_stream:
            channel = self.streams[-1] if self.streams else self.connection
            await channel.notify(method, cast("dict[str, Any]", params))


class StatusNotifier:
    """Pushes the changes of tasks to their callers."""

    def __init__(self, runtime: ServerRuntime, follower: SharedFollower) -> None:
        self._runtime = runtime
        self._follower = follower

    def start(self, ctx: AnyContext, task: Task, token: str | int | None) -> None:
        """Push a task to the connection of this request, once the caller has received the task.

        Progress is pushed only if the caller sent a progress token with its call.
        """
        connection = connection_of(ctx)
        if connection.has_standalone_channel:
            self._push(connection, task, token, ctx)

    @asynccontextmanager
    async def via_request_stream(self, ctx: AnyContext, task: Task) -> AsyncGenerator[None]:
        """Send the notifications for a task on the stream of a request, while the request waits for the task.

        If the task has ended, the context exits once every change before the end has been pushed.
        """
        stream = stream_of(ctx)
        push = None if stream is None else self._push(connection_of(ctx), task)
        if stream is None or push is None or push.push_task is None:
            yield
            return
        push.streams.append(stream)
        try:
            yield
            await asyncio.wait([push.push_task])
        finally:
            push.streams.remove(stream)
            if not push.streams and not push.has_own_stream:
                push.push_task.cancel()

    def _push(
        self,
        connection: Connection,
        task: Task,
        token: str | int | None = None,
        call: AnyContext | None = None,
    ) -> _TaskPush | None:
        pushed: dict[TaskId, _TaskPush] | None = connection.state.get(PUSHES_KEY)
        if pushed is None:
            pushed = connection.state[PUSHES_KEY] = {}
            connection.exit_stack.callback(_cancel_all, pushed)
        if task.id in pushed:
            # A repeated call may carry another token.
            pushed[task.id].token = pushed[task.id].token if token is None else token
            return pushed[task.id]
        if len(pushed) >= MAX_TASKS_PER_CONNECTION:
            return None
        push = pushed[task.id] = _TaskPush(task, connection, token)
        push.push_task = asyncio.ensure_future(self._run(push, call))
        push.push_task.add_done_callback(lambda _: pushed.pop(task.id, None))
        return push

    async def _run(self, push: _TaskPush, call: AnyContext | None) -> None:
        # The SDK has no event for the answer to a call. The answer is sent immediately, unless middleware around the
        # call delays it.
        while call is not None and not is_answered(call):  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(ANSWER_POLL_INTERVAL)
        clock, poll_policy = self._runtime.options.clock, self._runtime.poll_policy
        sent, done = (v2025.status_of(push.task), push.task.state), -1.0
        try:
            async with aclosing(self._follower.follow(push.task)) as views:
                async for view in views:
                    progress = None if push.token is None else v2025.progress_params(view.task, push.token)
                    if progress is not None and progress["progress"] > done and not view.task.is_terminal:
                        done = progress["progress"]
                        await push.send("notifications/progress", progress)
                    if (v2025.status_of(view.task), view.task.state) != sent:
                        sent = v2025.status_of(view.task), view.task.state
                        params = v2025.get_result(view, poll_ms=poll_policy.interval_ms(view.task), now=clock.now())
                        await push.send("notifications/tasks/status", params)
        except RaincheckError as error:
            logger.debug("stopped pushing task %s: %s", push.task.log_id, error)
        except Exception:
            logger.exception("failed to push task %s", push.task.log_id)


def _cancel_all(pushed: dict[TaskId, _TaskPush]) -> None:
    for push in list(pushed.values()):
        if push.push_task is not None:
            push.push_task.cancel()
