"""Handles: a call whose work goes on elsewhere."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from raincheck._async import at_most
from raincheck.client.errors import InputNeeded, TaskCancelled
from raincheck.client.polling import follow
from raincheck.client.saved_calls import Slip, TaskBook
from raincheck.client.session import Talk
from raincheck.client.tracker import Held
from raincheck.client.updates import Update
from raincheck.core.lifecycle import Status
from raincheck.errors import ConfigurationError, InvalidValue
from raincheck.tracebacks import text_logger

logger = text_logger(__name__)


class Handle:
    """A call that has been made. Await its `result`, or loop over it to see it change.

    handle = await client.call("build_report", {"year": 2026})
    async for update in handle:
        print(update.status, update.message)
    print(await handle.result())
    """

    def __init__(
        self,
        talk: Talk,
        *,
        held: Held | None = None,
        result: CallToolResult | None = None,
        book: TaskBook | None = None,
    ) -> None:
        self._talk = talk
        self._held = held
        self._result = result
        self._book = book
        self._ended: Update | None = None

    def __repr__(self) -> str:
        return f"<Handle of {'a call that was answered' if self._held is None else self._held.task_id}>"

    @property
    def slip(self) -> Slip | None:
        """What finds the task again; None where the call was answered at once."""
        return None if self._held is None else self._held.slip

    @property
    def task_id(self) -> str | None:
        """The task's id; None where the call was answered at once."""
        return None if self._held is None else self._held.task_id

    async def result(self, timeout: float | None = None) -> CallToolResult:  # noqa: ASYNC109 - as in asyncio.wait_for
        """Wait for the end, however long that takes, and return what the call itself would have returned.

        Questions go to the client's callbacks. With `timeout`, it waits for so many seconds. Whether that is over or
        whoever waits is cancelled, the work goes on.

        Raises:
            MCPError: the work has failed, with this error.
            TaskCancelled: it was cancelled.
            TaskNotFound: the server does not know it (any more), or not for this caller.
            InputNeeded: it asks something that no callback is for.
            ServerUnreachable: the server is away for too long.
            RequestRefused: it, or what stands before it, does not take a request, or the answer of a callback.
            BadAnswer: the server answers with something that is not what the protocol says.
            TimeoutError: it takes longer.
        """
        if self._result is not None or self._held is None:
            assert self._result is not None  # noqa: S101 - it is a task, or was answered
            return self._result
        async with at_most(self._talk.clock, timeout):
            self._result = await self._fetch(self._held, await self._end())
        return self._result

    def __aiter__(self) -> AsyncIterator[Update]:
        """The task as it is, and again after each change, until it has ended. Nothing, if it was answered at once."""
        return self._follow()

    async def look(self) -> Update | None:
        """The task as it is now; None if the call was answered at once."""
        if self._ended is not None or self._held is None:
            return self._ended
        return self._talk.shown(self._held, await self._talk.look(self._held))

    async def answer(self, answers: Mapping[str, Mapping[str, Any]]) -> None:
        """Answer what the task asks, by the keys of its questions: `{key: {"action": "accept", "content": {…}}}`.

        Raises:
            MCPError: the server refuses an answer.
            InvalidValue: likewise, in its own words; or the task does not ask that now.
        """
        if self._held is not None and answers:
            self._check_asked(answers, await self.look())
            await self._talk.answer(self._held, answers)

    def _check_asked(self, answers: Mapping[str, object], now: Update | None) -> None:
        """Servers ignore what they did not ask, so a slip of the pen would pass for an answer."""
        asked = [] if now is None else [question.key for question in now.questions]
        for key, answer in answers.items():
            if key not in asked:
                keys = f"it asks {', '.join(asked)}" if asked else "it asks nothing now, or that was answered"
                raise InvalidValue(f"the task does not ask {key!r}: {keys}")
            if not isinstance(answer, Mapping):
                how = '{"action": "accept", "content": {…}}, or another action'
                raise InvalidValue(f"the answer to {key!r} is {answer!r}: give {how}")

    async def cancel(self) -> None:
        """Ask for the work to be stopped. What has ended stays as it is.

        Raises:
            CancelRefused: it is a process, and its workflow does not let it be cancelled now. It goes on.
        """
        if self._held is not None and self._ended is None:
            await self._talk.cancel(self._held)

    async def _follow(self) -> AsyncGenerator[Update]:
        if self._ended is not None:
            # What has ended stays as it is, whatever the server says later.
            yield self._ended
        elif self._held is not None:
            async with aclosing(follow(self._talk, self._held)) as updates:
                async for update in updates:
                    self._ended = update if update.is_ended else None
                    yield update

    async def _end(self) -> Update:
        async with aclosing(self._follow()) as updates:
            async for update in updates:
                unanswered = self._talk.unanswered(update)
                if unanswered:
                    raise InputNeeded(update.task_id, unanswered)
        assert self._ended is not None  # noqa: S101 - a task is followed to its end
        return self._ended

    async def _fetch(self, held: Held, ended: Update) -> CallToolResult:
        try:
            result = await self._talk.fetch(held, ended)
        except MCPError:
            # Of a task that has not failed, it is the server's own trouble: the result can still be had.
            if ended.status is Status.FAILED:
                await self._cross_out(held)
            raise
        except TaskCancelled:
            await self._cross_out(held)
            raise
        await self._cross_out(held)
        return result

    async def _cross_out(self, held: Held) -> None:
        """Its end is known here, so nobody needs to find it again."""
        if self._book is None:
            return
        try:
            await self._book.remove(held.slip)
        except ConfigurationError:
            # Better found once too often than a result that is lost for it.
            logger.exception("task %s has ended, and stays in the book", held.task_id)
