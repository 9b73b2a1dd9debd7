"""Follow a task to its end: poll it at the server's interval, and sooner after a notification."""

import asyncio
import logging
from collections.abc import AsyncGenerator

from mcp.shared.exceptions import MCPError

from raincheck.client.connection import NoResponse
from raincheck.client.errors import RequestRefused, ServerUnreachable
from raincheck.client.session import SERVER_ASKS, ServerLink
from raincheck.client.tracker import TrackedTask
from raincheck.client.updates import Update

logger = logging.getLogger(__name__)

DEFAULT_POLL_INTERVAL, MIN_POLL_INTERVAL, MAX_POLL_INTERVAL = 1.0, 0.1, 600.0
"""Seconds between two polls: the default if the server sends no interval, the minimum and the maximum."""

MIN_UPDATE_INTERVAL = 0.05
"""The minimum number of seconds between two polls, however often the server reports changes."""

IDLE_TIMEOUT = 1.0
"""Seconds without a question after which a saturated client stops waiting for a task with server-sent questions."""


async def poll_updates(link: ServerLink, tracked: TrackedTask) -> AsyncGenerator[Update]:
    """Yield the task now, and again after each change, until it has ended."""
    with tracked.watch() as changed:
        background = _BackgroundWork(link, tracked)
        try:
            last: Update | None = None
            while True:
                update, polled_at = await link.poll(tracked), link.clock.monotonic()
                visible = link.without_answered(tracked, update)
                if visible != last:
                    last = visible
                    yield visible
                if update.is_ended:
                    return
                background.handle(update)
                await _wait_for_change(link, changed, update, polled_at)
                background.raise_failures()
        finally:
            await background.stop()


async def _wait_for_change(link: ServerLink, changed: asyncio.Event, update: Update, polled_at: float) -> None:
    """Wait for the server's poll interval, or until a change is reported."""
    interval = DEFAULT_POLL_INTERVAL if update.poll_after is None else update.poll_after
    waiting = asyncio.ensure_future(changed.wait())
    sleeping = asyncio.ensure_future(link.clock.sleep(min(max(interval, MIN_POLL_INTERVAL), MAX_POLL_INTERVAL)))
    try:
        await asyncio.wait([waiting, sleeping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        sleeping.cancel()
    remaining = polled_at + MIN_UPDATE_INTERVAL - link.clock.monotonic()
    if remaining > 0:
        await link.clock.sleep(remaining)
    changed.clear()


class _BackgroundWork:
    """Runs beside the polls: subscribes to changes, and runs the callbacks for questions."""

    def __init__(self, link: ServerLink, tracked: TrackedTask) -> None:
        self._link = link
        self._tracked = tracked
        self._listener: asyncio.Task[None] | None = None
        self._callbacks: dict[str, asyncio.Task[None]] = {}
        self._refused: dict[str, MCPError | RequestRefused] = {}
        self._idle_since: float | None = None
        """When a poll first reported no question. None while the task asks one."""
        self._can_listen = True

    def handle(self, update: Update) -> None:
        """Start or cancel background work, as the update requires."""
        if self._can_listen and (self._listener is None or self._listener.done()):
            self._listener = asyncio.create_task(self._listen(update))
        questions = self._link.questions_to_ask(update)
        for key, error in self._refused.items():
            # The question is still open, so the refused answer did not count. Otherwise another client answered it.
            if key in questions:
                raise error
        self._refused.clear()
        must_make_room = self._link.is_saturated and self._is_idle(
            is_asking=bool(questions or self._tracked.inputs_2025.open_requests)
        )
        for key, callback in self._callbacks.items():
            # Another client has answered, so the callback is not needed. A server that sends its questions withdraws
            # them itself.
            if key not in questions and (key != SERVER_ASKS or must_make_room):
                callback.cancel()
        for key, question in questions.items():
            if key not in self._callbacks:
                self._callbacks[key] = asyncio.create_task(self._link.run_callbacks(self._tracked, question))

    def _is_idle(self, *, is_asking: bool) -> bool:
        """Return whether the task has asked no question for so long that it probably won't ask one soon."""
        now = self._link.clock.monotonic()
        if is_asking:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        return self._idle_since is not None and now - self._idle_since >= IDLE_TIMEOUT

    def raise_failures(self) -> None:
        """Raise the errors of callbacks that could not answer."""
        for key, callback in list(self._callbacks.items()):
            if callback.done():
                del self._callbacks[key]
                error = None if callback.cancelled() else callback.exception()
                if isinstance(error, MCPError) or (isinstance(error, RequestRefused) and key != SERVER_ASKS):
                    self._refused[key] = error
                elif isinstance(error, NoResponse | ServerUnreachable):
                    logger.info("task %s: can't answer its question now: %s", self._tracked.task_id, error)
                elif error is not None:
                    raise error

    async def _listen(self, update: Update) -> None:
        try:
            self._can_listen = await self._link.listen(self._tracked, update)
        except Exception as error:  # noqa: BLE001 - only an optimization: the task is polled anyway
            logger.debug("task %s: the server sends no notifications: %r", self._tracked.task_id, error)

    async def stop(self) -> None:
        if SERVER_ASKS in self._callbacks and self._tracked.inputs_2025.awaiting_answer:
            # The callback's answer is in flight. Cancelling this request would drop the question.
            self._link.keep_running(self._callbacks.pop(SERVER_ASKS))
        running = [*self._callbacks.values(), *([] if self._listener is None else [self._listener])]
        for background_task in running:
            background_task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
