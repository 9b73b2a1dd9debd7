"""What tasks of 2026-07-28 ask: each question once, whoever waits for its answer.

A key names a question for the whole life of its task. So all who wait share one job that has somebody think about it,
and none of them takes it along when they leave.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR

from raincheck.client.asked import GAVE_UP
from raincheck.clock import Clock

Answer = dict[str, Any]

TAKEN_WITHIN = 60.0
"""Seconds in which a server takes in what it said that it got. What it still asks then it has not taken as an answer,
or has lost it, so it is a question again.
"""


class Consulting:
    """The questions of one task."""

    def __init__(self, clock: Clock) -> None:
        self.answers: dict[str, Answer] = {}
        """What callbacks have answered, by the keys of the questions. An answer may get lost on its way."""
        self._clock = clock
        self._on_their_way: Counter[str] = Counter()
        """How many answers are, by the keys of their questions."""
        self._arrived: dict[str, float] = {}
        """When the server last said that it has got an answer."""
        self._jobs: dict[str, asyncio.Task[Answer]] = {}

    @property
    def asked(self) -> frozenset[str]:
        """The keys of what somebody thinks about now."""
        return frozenset(self._jobs)

    async def ask(self, key: str, ask: Callable[[], Coroutine[Any, Any, Answer]]) -> None:
        """Have somebody asked, or wait with those who do already, until there is an answer. Raises what that raises."""
        job = self._jobs.get(key)
        if job is None:
            job = self._jobs[key] = asyncio.create_task(self._consult(key, ask))
            # Before anybody who waits goes on, and even if nobody does any more.
            job.add_done_callback(partial(self._keep, key))
        await asyncio.wait([job])
        job.result()

    @contextmanager
    def giving(self, keys: Iterable[str]) -> Generator[None]:
        """Answers are on their way to the server; they are not given if that fails."""
        keys = set(keys)
        self._on_their_way.update(keys)
        try:
            yield
            self._arrived |= dict.fromkeys(keys, self._clock.elapsed())
        finally:
            self._on_their_way.subtract(keys)

    def is_given(self, key: str) -> bool:
        """Whether it was answered, by hand or by a callback. A server may show it until it takes that in."""
        arrived = self._arrived.get(key)
        is_new = arrived is not None and self._clock.elapsed() - arrived < TAKEN_WITHIN
        return is_new or self._on_their_way[key] > 0

    def withdraw(self, keys: Iterable[str]) -> None:
        """Nobody needs to think about these any more."""
        for key in keys:
            job = self._jobs.pop(key, None)
            if job is not None:
                job.cancel()

    async def _consult(self, key: str, ask: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        try:
            return await ask()
        except asyncio.CancelledError as error:
            if self._jobs.get(key) is not asyncio.current_task():
                raise
            # Nobody has withdrawn it. If that were passed on, it would be asked again and again.
            raise MCPError(INTERNAL_ERROR, GAVE_UP) from error

    def _keep(self, key: str, job: asyncio.Task[Answer]) -> None:
        if self._jobs.get(key) is job:
            del self._jobs[key]
        if not job.cancelled() and job.exception() is None:
            self.answers[key] = job.result()
