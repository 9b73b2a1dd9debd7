"""Handles of calls that may still be running on the server."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from raincheck._async import timeout_after
from raincheck.client.errors import InputRequired, TaskCancelled
from raincheck.client.protocols.base import TaskProtocol, map_schema_errors
from raincheck.client.saved_calls import SavedCalls, TaskRef
from raincheck.client.session import ServerLink, poll_updates
from raincheck.client.tracker import TrackedTask, Update
from raincheck.core.lifecycle import Status
from raincheck.errors import ConfigurationError, InvalidValue
from raincheck.tracebacks import text_logger

logger = text_logger(__name__)


class Handle:
    """A call that was sent. Await its `result`, or iterate over it to receive its changes.

    handle = await client.call("build_report", {"year": 2026})
    async for update in handle:
        print(update.status, update.message)
    print(await handle.result())
    """

    def __init__(
        self,
        link: ServerLink,
        *,
        tracked: TrackedTask | None = None,
        result: CallToolResult | None = None,
        saved_calls: SavedCalls | None = None,
    ) -> None:
        self._link = link
        self._tracked = tracked
        self._result = result
        self._saved_calls = saved_calls
        self._final: Update | None = None

    def __repr__(self) -> str:
        return f"<Handle of {'a call that was answered' if self._tracked is None else self._tracked.task_id}>"

    @property
    def task_ref(self) -> TaskRef | None:
        """The reference with which to resume the task; None if the call was answered at once."""
        return None if self._tracked is None else self._tracked.task_ref

    @property
    def task_id(self) -> str | None:
        """The task's id; None if the call was answered at once."""
        return None if self._tracked is None else self._tracked.task_id

    async def result(self, timeout: float | None = None) -> CallToolResult:  # noqa: ASYNC109 - as in asyncio.wait_for
        """Wait for the end, however long it takes, and return what the call itself would have returned.

        Questions go to the client's callbacks. With `timeout`, it waits for at most that many seconds. If the timeout
        expires or the waiting caller is cancelled, the work continues.

        Raises:
            MCPError: the work failed, with this error.
            TaskCancelled: the task was cancelled.
            TaskNotFound: the server does not know the task (any more), or this caller may not see it.
            InputRequired: the task asks a question for which there is no callback.
            ServerUnreachable: the server was unavailable for longer than `reconnect_timeout`.
            RequestRefused: the server, or a proxy in front of it, refuses a request, or the answer of a callback.
            InvalidResponse: the server's response does not conform to the protocol.
            ResponseTooLarge: the result is larger than the client reads. A client with a higher limit can fetch it.
            TimeoutError: the timeout expired.
        """
        if self._result is not None or self._tracked is None:
            assert self._result is not None  # noqa: S101 - without a task there is a result
            return self._result
        async with timeout_after(self._link.clock, timeout):
            self._result = await self._fetch(self._tracked, await self._wait_for_end())
        return self._result

    def __aiter__(self) -> AsyncIterator[Update]:
        """Yield the task now, and after each change until its end; nothing if the call was answered at once."""
        return self._follow()

    async def poll(self) -> Update | None:
        """Return the task's current state; None if the call was answered at once."""
        if self._final is not None or self._tracked is None:
            return self._final
        return self._tracked.without_answered(await self._link.poll(self._tracked))

    async def answer(self, answers: Mapping[str, Mapping[str, Any]]) -> None:
        """Answer the task's questions, by their keys: `{key: {"action": "accept", "content": {…}}}`.

        Raises:
            MCPError: the server refuses an answer.
            InvalidValue: a server that reports errors as text refuses an answer, or the task has no such open question.
        """
        tracked = self._tracked
        if tracked is not None and answers:
            self._check_keys(answers, await self.poll())
            await self._link.request(tracked, lambda protocol, client: protocol.answer(client, tracked, answers))
            tracked.notify()

    def _check_keys(self, answers: Mapping[str, object], update: Update | None) -> None:
        """Check the keys here. Servers ignore unknown keys, so a misspelled key would count as an answer."""
        open_keys = [] if update is None else [question.key for question in update.questions]
        for key, answer in answers.items():
            if key not in open_keys:
                hint = f"its open questions are {', '.join(open_keys)}" if open_keys else "it has none now"
                raise InvalidValue(f"{key!r} is not an open question of the task: {hint}")
            if not isinstance(answer, Mapping):
                form = '{"action": "accept", "content": {…}}, or another action'
                raise InvalidValue(f"the answer to {key!r} is {answer!r}: pass {form}")

    async def cancel(self) -> None:
        """Request that the work stops. A task that has ended does not change.

        Raises:
            CancelRefused: the task is a workflow instance that can't be cancelled now. It continues.
        """
        tracked = self._tracked
        if tracked is not None and self._final is None:
            await self._link.request(tracked, lambda protocol, client: protocol.cancel(client, tracked))
            tracked.notify()

    async def _follow(self) -> AsyncGenerator[Update]:
        if self._final is not None:
            # An ended task is final, whatever the server reports later.
            yield self._final
        elif self._tracked is not None:
            async with aclosing(poll_updates(self._link, self._tracked)) as updates:
                async for update in updates:
                    self._final = update if update.is_ended else None
                    yield update

    async def _wait_for_end(self) -> Update:
        async with aclosing(self._follow()) as updates:
            async for update in updates:
                unanswered = self._link.unanswerable(update)
                if unanswered:
                    raise InputRequired(update.task_id, unanswered)
        assert self._final is not None  # noqa: S101 - iteration ends when the task has ended
        return self._final

    async def _fetch(self, tracked: TrackedTask, final: Update) -> CallToolResult:
        if final.status is Status.CANCELLED:
            await self._remove_saved_call(tracked)
            raise TaskCancelled(tracked.task_id, final.message)

        async def fetch(protocol: TaskProtocol, client: Client) -> CallToolResult:
            result = await protocol.fetch_result(client, tracked, final)
            if not result.is_error:
                # The SDK does the same for a call that is answered at once.
                with map_schema_errors(tracked.task_ref.tool):
                    await client.session.validate_tool_result(tracked.task_ref.tool, result)
            return result

        try:
            result = await self._link.request(tracked, fetch)
        except MCPError:
            # If the task has not failed, this error is the server's own, and the result can still be fetched.
            if final.status is Status.FAILED:
                await self._remove_saved_call(tracked)
            raise
        await self._remove_saved_call(tracked)
        return result

    async def _remove_saved_call(self, tracked: TrackedTask) -> None:
        """Remove the saved call of a task whose end is known."""
        if self._saved_calls is None:
            return
        try:
            await self._saved_calls.remove(tracked.task_ref)
        except ConfigurationError:
            # A saved call too many is better than a lost result.
            logger.exception("task %s has ended, but its saved call could not be removed", tracked.task_id)
