"""Tells callers of 2025-11-25 how their tasks go on, for as long as their connection lasts: status and progress.

What is pushed for a task goes out on the stream of a `tasks/result` that waits for it, where there is one, and else on
the connection's own. Callers may not rely on any of it: they poll.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast

from mcp.server.connection import Connection
from mcp.shared.dispatcher import Outbound

from raincheck.core.records import Task, TaskId
from raincheck.errors import RaincheckError
from raincheck.server.runtime import Running
from raincheck.server.sdk_compat import AnyContext, connection_of, is_answered, is_theirs, stream_of
from raincheck.server.shared_follower import Watching
from raincheck.tracebacks import text_logger
from raincheck.wire import v2025

logger = text_logger(__name__)

MOST = 1_000
"""How many tasks one connection is told of at once. The others can be polled."""

UNTIL_ANSWERED = 0.01
"""Seconds between two looks whether a caller knows of its task by now."""

STATE = "raincheck/pushed"
"""Where a connection keeps what is pushed to it."""


class _Push:
    """One task, of which one connection is told."""

    def __init__(self, task: Task, connection: Connection, token: str | int | None) -> None:
        self.task = task
        self.connection = connection
        self.token = token
        self.streams = list[Outbound]()
        """Of requests that wait for the task."""
        self.has_own_stream = connection.has_standalone_channel and is_theirs(connection, task.owner)
        self.job: asyncio.Future[None] | None = None

    async def send(self, method: str, params: object) -> None:
        if self.streams or self.has_own_stream:
            channel = self.streams[-1] if self.streams else self.connection
            await channel.notify(method, cast("dict[str, Any]", params))


class Pushing:
    """Pushes what happens to tasks."""

    def __init__(self, running: Running, watching: Watching) -> None:
        self._running = running
        self._watching = watching

    def begin(self, ctx: AnyContext, task: Task, token: str | int | None) -> None:
        """Tell the connection of this request of the task, as soon as it knows of it.

        Progress is for whoever gave a token with its call.
        """
        connection = connection_of(ctx)
        if connection.has_standalone_channel:
            self._push(connection, task, token, ctx)

    @asynccontextmanager
    async def through(self, ctx: AnyContext, task: Task) -> AsyncGenerator[None]:
        """While a request waits for the task, let what is pushed go out on its stream.

        It ends when everything has been pushed that comes before the end of the task, if the task has ended.
        """
        stream = stream_of(ctx)
        push = None if stream is None else self._push(connection_of(ctx), task)
        if stream is None or push is None or push.job is None:
            yield
            return
        push.streams.append(stream)
        try:
            yield
            await asyncio.wait([push.job])
        finally:
            push.streams.remove(stream)
            if not push.streams and not push.has_own_stream:
                push.job.cancel()

    def _push(
        self,
        connection: Connection,
        task: Task,
        token: str | int | None = None,
        call: AnyContext | None = None,
    ) -> _Push | None:
        pushed: dict[TaskId, _Push] | None = connection.state.get(STATE)
        if pushed is None:
            pushed = connection.state[STATE] = {}
            connection.exit_stack.callback(_end_all, pushed)
        if task.id in pushed:
            # The same call may be made again, and then has a token of its own.
            pushed[task.id].token = pushed[task.id].token if token is None else token
            return pushed[task.id]
        if len(pushed) >= MOST:
            return None
        push = pushed[task.id] = _Push(task, connection, token)
        push.job = asyncio.ensure_future(self._run(push, call))
        push.job.add_done_callback(lambda _: pushed.pop(task.id, None))
        return push

    async def _run(self, push: _Push, call: AnyContext | None) -> None:
        # Nobody tells when a call has been answered, which is at once, unless somebody around it takes their time.
        while call is not None and not is_answered(call):  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(UNTIL_ANSWERED)
        clock, pace = self._running.options.clock, self._running.pace
        told, done = (v2025.status_of(push.task), push.task.state), -1.0
        try:
            async with aclosing(self._watching.follow(push.task)) as views:
                async for view in views:
                    progress = None if push.token is None else v2025.progress(view.task, push.token)
                    if progress is not None and progress["progress"] > done and not view.task.is_terminal:
                        done = progress["progress"]
                        await push.send("notifications/progress", progress)
                    if (v2025.status_of(view.task), view.task.state) != told:
                        told = v2025.status_of(view.task), view.task.state
                        shown = v2025.detailed(view, poll_ms=pace.interval_ms(view.task), now=clock.now())
                        await push.send("notifications/tasks/status", shown)
        except RaincheckError as error:
            logger.debug("task %s is pushed no more: %s", push.task.shown_id, error)
        except Exception:
            logger.exception("task %s is pushed no more", push.task.shown_id)


def _end_all(pushed: dict[TaskId, _Push]) -> None:
    for push in list(pushed.values()):
        if push.job is not None:
            push.job.cancel()
