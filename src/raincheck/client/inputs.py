"""What servers of 2025-11-25 ask by themselves, over the connection.

When that breaks, they ask again on the next one. Whoever is thinking about the question must not notice.

What tasks of 2026-07-28 ask: each question once, whoever waits for its answer.

A key names a question for the whole life of its task. So all who wait share one job that has somebody think about it,
and none of them takes it along when they leave.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from itertools import count
from typing import Any, TypeVar

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR

from raincheck.client.updates import Question
from raincheck.clock import Clock
from raincheck.errors import InvalidValue

Place = tuple[str, int]
"""The key of a question, and which one of several that are alike and asked at the same time."""

GAVE_UP = "whoever was asked was cancelled, and has not answered"
"""What is said of a callback that ends so by itself."""

AnswerT = TypeVar("AnswerT")


def key_of(method: str, params: Mapping[str, Any], input_key: str | None = None) -> str:
    """Return a key for a question: a digest of its words and, if the server sent one, of the server's own key."""
    words = {name: value for name, value in params.items() if name != "_meta"}
    parts = [method, words] if input_key is None else [method, words, input_key]
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


class Asked:
    """What one task asks."""

    def __init__(self) -> None:
        self.by_hand: dict[str, Question] = {}
        """The questions that wait for `Handle.answer`, by their keys."""
        self._open: set[str] = set()
        """The keys of those that were asked by hand, and not answered since."""
        self._answers: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._jobs: dict[Place, asyncio.Task[Any]] = {}
        self._busy: dict[Place, object] = {}
        """Where the server waits for an answer, with a mark of who is to give it."""
        self._broken_off: set[Place] = set()
        self._given: dict[str, asyncio.Task[Any]] = {}
        """Finished callbacks of questions that the server has a key for, by our keys. The server may ask them again."""
        self._is_wanted = True

    async def ask(
        self, key: str, ask: Callable[[], Coroutine[Any, Any, AnswerT]], *, is_named: bool = False
    ) -> AnswerT:
        """What a callback answers, which goes on with the question if this ends because of the connection.

        It can't have been answered then, so whoever asks the same next means this one. An answer that was sent is
        not kept: the same words may be asked again, and mean something else by then.

        With `is_named`, the key identifies the question itself and not only its words. Its answer is kept and returned
        each time the server asks again, because the server may have withdrawn the question while the answer was sent.
        """
        taken = frozenset[Place]() if is_named else self._busy.keys() - self._broken_off
        place = next((key, number) for number in count() if (key, number) not in taken)
        self._broken_off.discard(place)
        job: asyncio.Task[AnswerT] = self._given.get(key) or self._jobs.get(place) or asyncio.create_task(ask())
        if is_named:
            job.add_done_callback(partial(self._keep_answer, key))
        self._jobs[place] = job
        mark = self._busy[place] = object()
        try:
            await asyncio.wait([job])
            is_stopped = job.cancelled() and self._jobs.get(place) is not job
            if is_stopped or (place in self._broken_off and self._busy.get(place) is mark):
                # Nobody would hear the answer, so it is kept for the next one, until the server takes this back.
                await asyncio.Event().wait()
        finally:
            # Unless another has gone on with it.
            if self._busy.get(place) is mark:
                del self._busy[place]
                if not self._is_wanted or (job.done() and place not in self._broken_off):
                    self._stop(place)
                self._broken_off.discard(place)
        if job.cancelled():
            # By itself. If that were passed on, it would look as if the connection had broken, and nobody were told.
            raise MCPError(INTERNAL_ERROR, GAVE_UP)
        return job.result()

    def _keep_answer(self, key: str, done: asyncio.Task[Any]) -> None:
        # A callback that failed is called again.
        if not done.cancelled() and done.exception() is None:
            self._given[key] = done

    @property
    def in_progress(self) -> frozenset[Place]:
        """The questions whose callbacks are running."""
        return frozenset(self._jobs)

    @property
    def waited_for(self) -> frozenset[object]:
        """The marks of what the server waits for now."""
        return frozenset(self._busy.values())

    def break_off(self, before: frozenset[object] = frozenset()) -> None:
        """A request has got lost, and with it what was asked in it, so the server can't take answers there.

        It may ask the same in the next one before it has taken this back. What was waited for `before` this request
        came in another way, and its answer is still heard there.
        """
        self._broken_off |= {place for place, mark in self._busy.items() if mark not in before}

    async def wait_for_hand(self, question: Question, *, is_named: bool = False) -> Mapping[str, Any]:
        """What is given as the answer, before or after it is asked. With `is_named`, it is kept, as in `ask`."""
        self._open.add(question.key)
        given = self._answer_to(question.key)
        if not given.done():
            self.by_hand[question.key] = question
        try:
            await asyncio.wait([given])
        finally:
            self.by_hand.pop(question.key, None)
        if not is_named:
            self._answers.pop(question.key, None)
        self._open.discard(question.key)
        return given.result()

    def give(self, key: str, answer: Mapping[str, Any]) -> None:
        """Answer by hand. It is kept until it is asked for again, since nobody is asked while nobody waits.

        Raises:
            InvalidValue: that is not asked now. Kept all the same, it would consent to whatever is asked next in the
                same words.
        """
        if key not in self._open:
            raise InvalidValue(f"the task asks nothing under the key {key!r} now: look at it again, and answer that")
        self.by_hand.pop(key, None)
        given = self._answer_to(key)
        if not given.done():
            given.set_result(answer)

    def want(self) -> None:
        """Somebody waits for the task."""
        self._is_wanted = True

    def give_up(self) -> None:
        """Nobody waits for the task any more, so nobody needs to think about what can't be answered just now.

        What can be answered may be: the server knows that it has asked, and does not ask again so soon.
        """
        self._is_wanted = False
        self.forget()

    def forget(self, known: frozenset[Place] | None = None) -> None:
        """What the connection broke off is asked no more: somebody else has answered it.

        `known` is what was in progress before the server was asked for the task: of what came later, that says nothing.
        """
        over = self._jobs.keys() - (self._busy.keys() - self._broken_off)
        for place in over if known is None else over & known:
            self._stop(place)
        for key in self._open - self.by_hand.keys():
            self._open.discard(key)
            self._answers.pop(key, None)

    def _stop(self, place: Place) -> None:
        job = self._jobs.pop(place, None)
        if job is not None:
            job.cancel()

    def _answer_to(self, key: str) -> "asyncio.Future[Mapping[str, Any]]":
        return self._answers.setdefault(key, asyncio.get_running_loop().create_future())


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
