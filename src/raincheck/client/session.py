"""Requests about tasks to one server, in whichever protocol it speaks, retried after a disconnect.

A task is followed to its end: it is polled at the server's interval, and sooner after a notification.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

from mcp.client import Client
from mcp.shared.exceptions import MCPError

from raincheck.client.connection import NoResponse, ServerConnection, classify_loss
from raincheck.client.errors import InvalidResponse, RequestRefused, ServerUnreachable
from raincheck.client.inputs import Question
from raincheck.client.protocols.base import (
    CallOutcome,
    CallRequest,
    TaskProtocol,
    ToolCache,
)
from raincheck.client.protocols.fallback import FallbackProtocol
from raincheck.client.protocols.v2025 import Protocol2025
from raincheck.client.protocols.v2026 import Protocol2026
from raincheck.client.saved_calls import ProtocolName
from raincheck.client.tracker import TrackedTask, Update
from raincheck.clock import Clock
from raincheck.core.lifecycle import Status
from raincheck.wire.v2026 import EXTENSION

logger = logging.getLogger(__name__)

DEFAULT_POLL_INTERVAL, MIN_POLL_INTERVAL, MAX_POLL_INTERVAL = 1.0, 0.1, 600.0
"""Seconds between two polls: the default if the server sends no interval, the minimum and the maximum."""

MIN_UPDATE_INTERVAL = 0.05
"""The minimum number of seconds between two polls, however often the server reports changes."""

IDLE_TIMEOUT = 1.0
"""Seconds without a question after which a saturated client stops waiting for a task with server-sent questions."""


T = TypeVar("T")

SERVER_ASKS = ""
"""The key that stands for the questions that a server sends over the connection."""

MAX_STREAMS = 16
"""The maximum number of long-lived requests of one kind. Over HTTP each takes one of a hundred connections."""


class ServerLink:
    """Sends requests about tasks to one server, in the protocol that it speaks."""

    def __init__(self, connection: ServerConnection, can_ask: Callable[[str], bool], clock: Clock) -> None:
        self.connection = connection
        self.clock = clock
        self._can_ask = can_ask
        self._tool_cache = ToolCache()
        self._background_tasks: set[asyncio.Task[None]] = set()
        self._listen_slots = asyncio.Semaphore(MAX_STREAMS)
        self._callback_slots = asyncio.Semaphore(MAX_STREAMS)
        self._protocols: dict[ProtocolName, TaskProtocol] = {
            "2026-07-28": Protocol2026(),
            "2025-11-25": Protocol2025(self._tool_cache),
            "plain": FallbackProtocol(),
        }

    @property
    def is_saturated(self) -> bool:
        """Return whether tasks have to wait before their questions can be asked."""
        return self._callback_slots.locked()

    def keep_running(self, background_task: asyncio.Task[None]) -> None:
        """Keep a background task running without a waiter, until the link closes."""
        self._background_tasks.add(background_task)
        background_task.add_done_callback(self._background_tasks.discard)

    async def close(self) -> None:
        """Close the connection, and cancel the background tasks."""
        await self.connection.close()
        for background_task in self._background_tasks:
            background_task.cancel()
        await asyncio.gather(*self._background_tasks, return_exceptions=True)

    async def supports_keys(self, client: Client, tool: str) -> bool:
        """Return whether the server declares that it starts a keyed call of this tool once."""
        try:
            return (await self._tool_cache.find(client, tool)).supports_keys
        except MCPError as error:
            if classify_loss(error) is not None:
                raise
            # A server that lists no tools can still be called.
            return False
        except InvalidResponse:
            # An unreadable list declares nothing.
            return False

    async def start(self, client: Client, call: CallRequest) -> CallOutcome:
        """Call a tool."""
        return await self._protocols[_protocol_of(client)].start(client, call)

    async def poll(self, tracked: TrackedTask) -> Update:
        """Return the task's current state, as the server reports it."""
        update = await self.request(tracked, lambda protocol, client: protocol.poll(client, tracked))
        if update.task_id != tracked.task_id:
            raise InvalidResponse(
                f"the server was asked for task {tracked.task_id!r}, but returned task {update.task_id!r}"
            )
        return update

    def questions_to_ask(self, update: Update) -> dict[str, Question | None]:
        """Return the questions for callbacks, by their keys; None stands for questions that the server sends itself."""
        if update.status is not Status.INPUT_REQUIRED:
            return {}
        if update.server_asks:
            return {SERVER_ASKS: None} if len(self.unanswerable(update)) < max(len(update.questions), 1) else {}
        return {question.key: question for question in update.questions if self._can_ask(question.method)}

    async def run_callbacks(self, tracked: TrackedTask, question: Question | None) -> None:
        """Run the callbacks for a question once, even if several callers wait for its answer."""

        async def run(client: Client) -> bool:
            return await self._protocol(client, tracked).run_callbacks(client, tracked, question)

        if question is None:
            async with tracked.callback_lock, self._callback_slots:
                is_changed = await self.connection.request_once(run)
        else:
            # If the answer is sent again, the callback does not run again.
            is_changed = await self.connection.request(run, response_timeout=None)
        if is_changed:
            tracked.notify()

    async def listen(self, tracked: TrackedTask, update: Update) -> bool:
        """Subscribe to the task's changes. Returns whether it makes sense to subscribe again."""
        if self._listen_slots.locked():
            return True
        async with self._listen_slots:
            client = await self.connection.client()
            return await self._protocol(client, tracked).listen(client, tracked, update)

    def unanswerable(self, update: Update) -> tuple[Question, ...]:
        """Return the questions for which there is no callback."""
        return tuple(question for question in update.questions if not self._can_ask(question.method))

    async def request(self, tracked: TrackedTask, send: Callable[[TaskProtocol, Client], Awaitable[T]]) -> T:
        """Send a request about a task in the server's protocol, and retry until there is a response."""
        return await self.connection.request(lambda client: send(self._protocol(client, tracked), client))

    def _protocol(self, client: Client, tracked: TrackedTask) -> TaskProtocol:
        return self._protocols[_protocol_of(client, tracked.task_ref.tier)]


def _protocol_of(client: Client, saved: ProtocolName | None = None) -> ProtocolName:
    """Return the protocol for tasks on this connection. After a reconnect the server may run another version."""
    capabilities, version = client.server_capabilities, client.protocol_version
    if version == "2026-07-28" and (EXTENSION in (capabilities.extensions or {}) or saved == version):
        return "2026-07-28"
    requests = None if capabilities.tasks is None else capabilities.tasks.requests
    if version == "2025-11-25" and ((requests is not None and requests.tools is not None) or saved == version):
        return "2025-11-25"
    # A server that does not declare tasks may still have them: the task reference records it.
    return "plain"


async def poll_updates(link: ServerLink, tracked: TrackedTask) -> AsyncGenerator[Update]:
    """Yield the task now, and again after each change, until it has ended."""
    with tracked.watch() as changed:
        background = _BackgroundWork(link, tracked)
        try:
            last: Update | None = None
            while True:
                update, polled_at = await link.poll(tracked), link.clock.monotonic()
                visible = tracked.without_answered(update)
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
