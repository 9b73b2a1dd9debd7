"""Follow tasks for callers before 2026-07-28, and push status and progress for as long as their connection lasts.

Many callers may follow one task: each change of it is read once per process.

Notifications for a task are sent on the stream of a `tasks/result` request that waits for the task. If there is none,
they are sent on the connection's own stream. Callers must not rely on notifications: they poll.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

from mcp.server.connection import Connection
from mcp.shared.dispatcher import Outbound

from raincheck._async import spawn_background
from raincheck.clock import Clock
from raincheck.core.records import Task, TaskId, View
from raincheck.engine import Engine
from raincheck.errors import RaincheckError
from raincheck.server.runtime import ServerRuntime
from raincheck.server.sdk_compat import AnyContext, connection_of, is_answered, is_owned_by, stream_of
from raincheck.server.wait_policy import WaitPolicy
from raincheck.tracebacks import text_logger
from raincheck.wire import v2025

logger = text_logger(__name__)

MAX_TASKS_PER_CONNECTION = 1_000
"""Maximum number of tasks that are pushed to one connection at once. Callers can poll all others."""

ANSWER_POLL_INTERVAL = 0.01
"""Seconds between checks of whether a caller has received its task."""

PUSHES_KEY = "raincheck/pushed"
"""Key in a connection's state for the tasks that are pushed to it."""


class _FollowedTask:
    """A followed task and its latest view."""

    def __init__(self, task: Task, engine: Engine) -> None:
        self.users = 0
        # Parts of a task that are not in its record have to be read.
        is_whole = not (task.is_terminal or task.open_inputs)
        self.view: View | None = View(task, None, ()) if is_whole else None
        self.changed = asyncio.Event()
        # A background task, so that asyncio does not report an error that no caller waits for any more.
        self.follow_task = spawn_background(self._follow(task, engine))
        self.follow_task.add_done_callback(lambda _: self._notify())

    async def _follow(self, task: Task, engine: Engine) -> None:
        last_seen = task if self.view is not None else None
        async with aclosing(engine.follow(task.id, owner=task.owner, last_seen=last_seen)) as views:
            async for view in views:
                self.view = view
                self._notify()

    def _notify(self) -> None:
        # Each change has its own event, so that a waiter that arrives late for one does not miss the next.
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


class SharedFollower:
    """Follows each task once for all the callers in this process that wait for it."""

    def __init__(self, runtime: ServerRuntime) -> None:
        self._runtime = runtime
        self._followed: dict[TaskId, _FollowedTask] = {}

    async def follow(self, task: Task) -> AsyncGenerator[View]:
        """Yield the task now, and again after each change, until it has ended. Like `Engine.follow`, but shared.

        Check that the task belongs to the caller before calling this.
        """
        followed = self._followed.get(task.id)
        if followed is None or followed.follow_task.done():
            followed = self._followed[task.id] = _FollowedTask(task, self._runtime.engine)
        followed.users += 1
        last_version = 0
        try:
            while True:
                changed = followed.changed
                view = followed.view
                if view is not None and view.task.version != last_version:
                    last_version = view.task.version
                    yield view
                    if view.task.is_terminal:
                        return
                elif followed.follow_task.done():
                    # Raises the error that stopped it. Without an error, it can't have stopped.
                    followed.follow_task.result()
                    raise AssertionError("the follower stopped before the task ended")
                else:
                    await changed.wait()
        finally:
            followed.users -= 1
            if not followed.users:
                followed.follow_task.cancel()
                if self._followed.get(task.id) is followed:
                    del self._followed[task.id]


class _TaskPush:
    """One task that is pushed to one connection."""

    push_task: asyncio.Future[None]

    def __init__(self, task: Task, connection: Connection, token: str | int | None) -> None:
        self.task = task
        self.connection = connection
        self.token = token
        self.streams = list[Outbound]()
        """Streams of requests that wait for the task."""
        self.has_own_stream = connection.has_standalone_channel and is_owned_by(connection, task.owner)

    async def send(self, method: str, params: object) -> None:
        if self.streams or self.has_own_stream:
            channel = self.streams[-1] if self.streams else self.connection
            await channel.notify(method, cast("dict[str, Any]", params))


@dataclass(frozen=True, slots=True, eq=False)
class StatusNotifier:
    """Pushes the changes of tasks to their callers."""

    clock: Clock
    wait_policy: WaitPolicy
    follower: SharedFollower

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
        if stream is None or push is None:
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
        sent, done = (v2025.status_of(push.task), push.task.state), -1.0
        try:
            async with aclosing(self.follower.follow(push.task)) as views:
                async for view in views:
                    progress = None if push.token is None else v2025.progress_params(view.task, push.token)
                    if progress is not None and progress["progress"] > done and not view.task.is_terminal:
                        done = progress["progress"]
                        await push.send("notifications/progress", progress)
                    if (v2025.status_of(view.task), view.task.state) != sent:
                        sent = v2025.status_of(view.task), view.task.state
                        poll_ms = self.wait_policy.poll_interval_ms(view.task)
                        params = v2025.get_result(view, poll_ms=poll_ms, now=self.clock.now())
                        await push.send("notifications/tasks/status", params)
        except RaincheckError as error:
            logger.debug("stopped pushing task %s: %s", push.task.log_id, error)
        except Exception:
            logger.exception("failed to push task %s", push.task.log_id)


def _cancel_all(pushed: dict[TaskId, _TaskPush]) -> None:
    for push in list(pushed.values()):
        push.push_task.cancel()
