"""Whose turn it is to be asked a question: one caller's at a time, and the next one's when that one is gone."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypeAlias

from raincheck.clock import Clock
from raincheck.core.records import TaskId
from raincheck.server.presence import until_away
from raincheck.server.sdk import AnyContext, connection_of

ASKED_FOR = 600.0
"""Seconds in which somebody answers who is asked. After that, it is asked again."""

Question: TypeAlias = tuple[TaskId, str]
"""A question, by its task and its key."""


class Turn:
    """Who is being asked, and who was before and is gone."""

    def __init__(self, ctx: AnyContext, before: "Turn | None", clock: Clock) -> None:
        self.before = before
        self._clock = clock
        self.connection = connection_of(ctx)
        self.job = asyncio.current_task()
        self.is_free = asyncio.Event()
        """It is over, or who has it stays away."""
        self.is_over = False
        # One that looks, however many wait.
        self._looking = asyncio.ensure_future(until_away(ctx, clock))
        self._looking.add_done_callback(self._free)

    def hold(self) -> None:
        """Who has it is heard of, wherever its request is: nobody else need be asked."""
        self._looking.remove_done_callback(self._free)
        self._looking.cancel()
        self.is_free.clear()

    def hold_for_now(self) -> None:
        """Who has it is asked, and its request is answered: to be asked again in the next one would be too much."""
        self.hold()
        self._looking = asyncio.ensure_future(self._clock.sleep(ASKED_FOR))
        self._looking.add_done_callback(self._free)

    def _free(self, _: "asyncio.Future[None]") -> None:
        self.is_free.set()

    def end(self) -> None:
        self.is_over = True
        self.before = None
        self._looking.cancel()
        self.is_free.set()


class Turns:
    """The turns in one process, for each question."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turns: dict[Question, Turn] = {}

    def is_taken(self, ctx: AnyContext, question: Question) -> bool:
        """Whether somebody is being asked on the connection of this request."""
        turn = self._turns.get(question)
        return turn is not None and not turn.is_free.is_set() and turn.connection is connection_of(ctx)

    @asynccontextmanager
    async def taken(self, ctx: AnyContext, question: Question) -> AsyncGenerator[Turn]:
        """Be the one who is asked. One who is gone may still answer, and is waited for beside."""
        while (other := self._turns.get(question)) is not None:
            await other.is_free.wait()
            if not other.is_over and self._turns.get(question) is other:
                break
        if other is not None and other.before is not None and other.before.job is not None:
            # Of those who are gone, only the last is waited for.
            other.before.job.cancel()
            other.before = None
        turn = self._turns[question] = Turn(ctx, other, self._clock)
        try:
            yield turn
        finally:
            turn.end()
            if self._turns.get(question) is turn:
                del self._turns[question]
