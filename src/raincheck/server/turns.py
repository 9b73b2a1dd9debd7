"""Whose turn it is to be asked a question: one caller's at a time, and the next one's when that one is gone."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TypeAlias

from raincheck.clock import Clock
from raincheck.core.records import TaskId
from raincheck.engine.timing import first_of
from raincheck.server.presence import until_gone
from raincheck.server.sdk import AnyContext

Question: TypeAlias = tuple[TaskId, str]
"""A question, by its task and its key."""


class _Turn:
    """Who is being asked, and who was before and is gone."""

    def __init__(self, ctx: AnyContext, before: "_Turn | None") -> None:
        self.ctx = ctx
        self.before = before
        self.job = asyncio.current_task()
        self.is_over = asyncio.Event()


class Turns:
    """The turns in one process, for each question."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._turns: dict[Question, _Turn] = {}

    @asynccontextmanager
    async def taken(self, ctx: AnyContext, question: Question) -> AsyncGenerator[None]:
        """Be the one who is asked. One who is gone may still answer, and is waited for beside."""
        while (other := self._turns.get(question)) is not None:
            await first_of(other.is_over.wait(), until_gone(other.ctx, self._clock))
            if not other.is_over.is_set() and self._turns.get(question) is other:
                break
        if other is not None and other.before is not None and other.before.job is not None:
            # Of those who are gone, only the last is waited for.
            other.before.job.cancel()
            other.before = None
        turn = self._turns[question] = _Turn(ctx, other)
        try:
            yield
        finally:
            turn.is_over.set()
            turn.before = None
            if self._turns.get(question) is turn:
                del self._turns[question]
