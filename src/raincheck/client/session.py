"""Requests about tasks to one server, in whichever protocol it speaks, retried after a disconnect."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from raincheck.client.connection import ServerConnection
from raincheck.client.errors import InvalidResponse, TaskCancelled
from raincheck.client.protocols.base import (
    Answers,
    CallOutcome,
    CallRequest,
    TaskProtocol,
    ToolCache,
    map_schema_errors,
)
from raincheck.client.protocols.fallback import FallbackProtocol
from raincheck.client.protocols.v2025 import Protocol2025
from raincheck.client.protocols.v2026 import Protocol2026
from raincheck.client.saved_calls import ProtocolName
from raincheck.client.tracker import TaskTracker, TrackedTask
from raincheck.client.transport_errors import classify_loss
from raincheck.client.updates import Question, Update
from raincheck.clock import Clock
from raincheck.core.lifecycle import Status
from raincheck.wire.v2026 import EXTENSION

T = TypeVar("T")

SERVER_ASKS = ""
"""The key that stands for the questions that a server sends over the connection."""

MAX_STREAMS = 16
"""The maximum number of long-lived requests of one kind. Over HTTP each takes one of a hundred connections."""


class ServerLink:
    """Sends requests about tasks to one server, in the protocol that it speaks."""

    def __init__(
        self, connection: ServerConnection, tracker: TaskTracker, can_ask: Callable[[str], bool], clock: Clock
    ) -> None:
        self.connection = connection
        self.tracker = tracker
        self.clock = clock
        self._can_ask = can_ask
        self._tool_cache = ToolCache()
        self._background_tasks: set[asyncio.Task[None]] = set()
        self._listen_slots = asyncio.Semaphore(MAX_STREAMS)
        self._callback_slots = asyncio.Semaphore(MAX_STREAMS)
        self._protocols: dict[ProtocolName, TaskProtocol] = {
            "2026-07-28": Protocol2026(),
            "2025-11-25": Protocol2025(tracker, self._tool_cache),
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
        update = await self._request(tracked, lambda protocol, client: protocol.poll(client, tracked))
        if update.task_id != tracked.task_id:
            raise InvalidResponse(
                f"the server was asked for task {tracked.task_id!r}, but returned task {update.task_id!r}"
            )
        return update

    def without_answered(self, tracked: TrackedTask, update: Update) -> Update:
        """Return the update without questions that were answered, so that they are not asked again."""
        is_answered = tracked.inputs_2026.is_answered
        return replace(
            update, questions=tuple(question for question in update.questions if not is_answered(question.key))
        )

    async def fetch_result(self, tracked: TrackedTask, update: Update) -> CallToolResult:
        """Return the result of a task that has ended.

        Raises:
            MCPError: the task failed.
            TaskCancelled: the task was cancelled.
        """
        if update.status is Status.CANCELLED:
            raise TaskCancelled(tracked.task_id, update.message)

        async def fetch(protocol: TaskProtocol, client: Client) -> CallToolResult:
            result = await protocol.fetch_result(client, tracked, update)
            if not result.is_error:
                # The SDK does the same for a call that is answered at once.
                with map_schema_errors(tracked.task_ref.tool):
                    await client.session.validate_tool_result(tracked.task_ref.tool, result)
            return result

        return await self._request(tracked, fetch)

    async def answer(self, tracked: TrackedTask, answers: Answers) -> None:
        await self._request(tracked, lambda protocol, client: protocol.answer(client, tracked, answers))
        tracked.notify()

    async def cancel(self, tracked: TrackedTask) -> None:
        await self._request(tracked, lambda protocol, client: protocol.cancel(client, tracked))
        tracked.notify()

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

    async def _request(self, tracked: TrackedTask, send: Callable[[TaskProtocol, Client], Awaitable[T]]) -> T:
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
