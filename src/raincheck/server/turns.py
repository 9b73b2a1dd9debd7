"""Whose turn it is to be asked a question: one caller's at a time, and the next one's when that one is gone.

One whose wait is over, and whose user has the question still, is not asked again on its connection. That keeps nobody
else: it may have gone for good, and over HTTP nobody would tell us.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import TypeAlias

from mcp.server.connection import Connection

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
        self.is_over = False
        self._is_free = asyncio.Event()
        """It is over, or who has it stays away."""
        self._is_free_for_others = asyncio.Event()
        """Likewise, or who has it waits no longer."""
        # One that looks, however many wait.
        self._looking = asyncio.ensure_future(until_away(ctx, clock))
        self._looking.add_done_callback(self._free)

    def freedom_for(self, connection: Connection) -> asyncio.Event:
        """Set while somebody on that connection may be asked."""
        return self._is_free if connection is self.connection else self._is_free_for_others

    def hold(self) -> None:
        """Who has it is heard of, wherever its request is: nobody else need be asked."""
        self._looking.remove_done_callback(self._free)
        self._looking.cancel()
        self._is_free.clear()
        self._is_free_for_others.clear()

    def hold_for_now(self) -> None:
        """Who has it is asked, and its request is answered: to be asked again in the next one would be too much."""
        self.hold()
        self._is_free_for_others.set()
        self._looking = asyncio.ensure_future(self._clock.sleep(ASKED_FOR))
        self._looking.add_done_callback(self._free)

    def _free(self, _: "asyncio.Future[None] | None" = None) -> None:
        self._is_free.set()
        self._is_free_for_others.set()

    def end(self) -> None:
        self.is_over = True
        self.before = None
        self._looking.cancel()
        self._free()


class Turns:
    """The turns in one process, for each question."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turns: dict[Question, Turn] = {}

    def is_taken(self, ctx: AnyContext, question: Question) -> bool:
        """Whether somebody is being asked on the connection of this request."""
        connection = connection_of(ctx)
        return any(
            turn.connection is connection and not turn.freedom_for(connection).is_set() for turn in self._all(question)
        )

    @asynccontextmanager
    async def taken(self, ctx: AnyContext, question: Question) -> AsyncGenerator[Turn]:
        """Be the one who is asked. One who is gone may still answer, and is waited for beside."""
        connection = connection_of(ctx)
        while (freedom := self._freedom(connection, question)) is not None:
            await freedom.wait()
        other = self._turns.get(question)
        if other is not None and other.before is not None and other.before.job is not None:
            # Of those who are gone, only the last is waited for.
            other.before.job.cancel()
            other.before = None
        turn = self._turns[question] = Turn(ctx, other, self._clock)
        try:
            yield turn
        finally:
            before = turn.before
            turn.end()
            if self._turns.get(question) is turn:
                del self._turns[question]
                if before is not None and not before.is_over:
                    # Still asked, and not to be asked twice.
                    self._turns[question] = before

    def _freedom(self, connection: Connection, question: Question) -> asyncio.Event | None:
        """What to wait for, before somebody on this connection is asked; None if it may be."""
        events = (turn.freedom_for(connection) for turn in self._all(question))
        return next((event for event in events if not event.is_set()), None)

    def _all(self, question: Question) -> Iterator[Turn]:
        """The turn, and the one before it, which may be on."""
        turn = self._turns.get(question)
        while turn is not None:
            yield turn
            turn = turn.before
