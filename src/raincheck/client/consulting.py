"""What tasks of 2026-07-28 ask: each question once, whoever waits for its answer.

A key names a question for the whole life of its task. So all who wait share one job that has somebody think about it,
and none of them takes it along when they leave.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from typing import Any

Answer = dict[str, Any]


class Consulting:
    """The questions of one task."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        """What callbacks have answered, by the keys of the questions. An answer may get lost on its way."""
        self.given: set[str] = set()
        """The keys of what was answered, by hand or by a callback. A server may show them until it takes that in."""
        self._jobs: dict[str, asyncio.Task[Answer]] = {}

    @property
    def asked(self) -> frozenset[str]:
        """The keys of what somebody thinks about now."""
        return frozenset(self._jobs)

    async def ask(self, key: str, ask: Callable[[], Coroutine[Any, Any, Answer]]) -> None:
        """Have somebody asked, or wait with those who do already, until there is an answer. Raises what that raises."""
        job = self._jobs.get(key)
        if job is None:
            job = self._jobs[key] = asyncio.create_task(ask())
            # Before anybody who waits goes on, and even if nobody does any more.
            job.add_done_callback(partial(self._keep, key))
        await asyncio.wait([job])
        job.result()

    @contextmanager
    def giving(self, keys: Iterable[str]) -> Generator[None]:
        """Answers are on their way to the server; they are not given if that fails."""
        keys = set(keys)
        self.given |= keys
        try:
            yield
        except BaseException:
            self.given -= keys
            raise

    def withdraw(self, keys: Iterable[str]) -> None:
        """Nobody needs to think about these any more."""
        for key in keys:
            job = self._jobs.pop(key, None)
            if job is not None:
                job.cancel()

    def _keep(self, key: str, job: asyncio.Task[Answer]) -> None:
        if self._jobs.get(key) is job:
            del self._jobs[key]
        if not job.cancelled() and job.exception() is None:
            self.answers[key] = job.result()
