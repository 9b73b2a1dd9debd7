"""Input requests of tasks, and the callbacks that answer them.

A server of 2025-11-25 sends input requests over the connection. After a disconnect it sends them again on the next one,
and the callback that is running must not notice. A task of 2026-07-28 reports its questions when it is polled. A key
identifies a question for the whole life of its task, so concurrent waiters share one callback. It keeps
running when one of them stops waiting.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import count
from typing import Any, TypeVar

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR

from raincheck.clock import Clock
from raincheck.errors import InvalidValue
from raincheck.wire.fields import as_object

QuestionOccurrence = tuple[str, int]
"""The key of a question, and its number among equal questions that are asked at the same time."""

CALLBACK_CANCELLED = "the callback was cancelled before it answered"
"""The error message for a callback that cancelled itself."""

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class Question:
    """A question that a task asks."""

    key: str
    """The key that identifies the question in an answer."""
    request: Mapping[str, Any]
    """The protocol's request: its `method` and `params`."""

    @property
    def method(self) -> str:
        """`elicitation/create`, `sampling/createMessage` or `roots/list`."""
        return str(self.request.get("method", ""))

    @property
    def params(self) -> Mapping[str, Any]:
        return as_object(self.request.get("params"))

    @property
    def message(self) -> str:
        """The text of the question; empty if the request has none."""
        return str(self.params.get("message", ""))


def question_key(method: str, params: Mapping[str, Any], input_key: str | None = None) -> str:
    """Return a key for a question: a digest of its content and, if the server sent one, of the server's own key."""
    content = {name: value for name, value in params.items() if name != "_meta"}
    parts = [method, content] if input_key is None else [method, content, input_key]
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


class PendingInputs2025:
    """The open input requests of one task of 2025-11-25."""

    def __init__(self) -> None:
        self.awaiting_answer: dict[str, Question] = {}
        """The questions that wait for `Handle.answer`, by their keys."""
        self._open_keys: set[str] = set()
        """The keys of the questions left to `Handle.answer` that are not answered yet."""
        self._answers: dict[str, asyncio.Future[Mapping[str, Any]]] = {}
        self._callbacks: dict[QuestionOccurrence, asyncio.Task[Any]] = {}
        self._requests: dict[QuestionOccurrence, object] = {}
        """The open requests of the server, each with a mark that identifies the request that may answer it."""
        self._disconnected: set[QuestionOccurrence] = set()
        self._finished: dict[str, asyncio.Task[Any]] = {}
        """Finished callbacks of questions that the server has a key for, by our keys. The server may ask them again."""
        self._has_waiters = True

    async def run_callback(
        self, key: str, callback: Callable[[], Coroutine[Any, Any, AnswerT]], *, has_input_key: bool = False
    ) -> AnswerT:
        """Run a callback and return its answer. If the connection breaks, the callback continues for the next request.

        After a disconnect the question can't have been answered, so the next equal request means the same one. An
        answer that was sent is not stored: a later equal question may mean something else.

        With `has_input_key`, the key identifies the question itself and not only its content. Its answer is stored and
        returned each time the server asks again, because the server may have withdrawn the question while the answer
        was sent.
        """
        in_use = frozenset[QuestionOccurrence]() if has_input_key else self._requests.keys() - self._disconnected
        occurrence = next((key, number) for number in count() if (key, number) not in in_use)
        self._disconnected.discard(occurrence)
        running: asyncio.Task[AnswerT] = (
            self._finished.get(key) or self._callbacks.get(occurrence) or asyncio.create_task(callback())
        )
        if has_input_key:
            running.add_done_callback(partial(self._store_answer, key))
        self._callbacks[occurrence] = running
        mark = self._requests[occurrence] = object()
        try:
            await asyncio.wait([running])
            is_stopped = running.cancelled() and self._callbacks.get(occurrence) is not running
            if is_stopped or (occurrence in self._disconnected and self._requests.get(occurrence) is mark):
                # The answer could not be sent, so it is held for the next request, until the server withdraws this one.
                await asyncio.Event().wait()
        finally:
            # Another request may have taken over the callback.
            if self._requests.get(occurrence) is mark:
                del self._requests[occurrence]
                if not self._has_waiters or (running.done() and occurrence not in self._disconnected):
                    self._stop(occurrence)
                self._disconnected.discard(occurrence)
        if running.cancelled():
            # The callback cancelled itself. If the cancellation were passed on, it would look like a disconnect, and go
            # unreported.
            raise MCPError(INTERNAL_ERROR, CALLBACK_CANCELLED)
        return running.result()

    def _store_answer(self, key: str, finished: asyncio.Task[Any]) -> None:
        # A callback that failed is called again.
        if not finished.cancelled() and finished.exception() is None:
            self._finished[key] = finished

    @property
    def in_progress(self) -> frozenset[QuestionOccurrence]:
        """The questions whose callbacks are running."""
        return frozenset(self._callbacks)

    @property
    def open_requests(self) -> frozenset[object]:
        """The marks of the requests that the server has open now."""
        return frozenset(self._requests.values())

    def mark_disconnected(self, before: frozenset[object] = frozenset()) -> None:
        """Mark the open requests as disconnected after a request was lost, since the server can't take answers to them.

        The server may ask the same in the next request before it has withdrawn this one. Requests in `before` were open
        earlier: they arrived in another way, and their answers still reach the server.
        """
        self._disconnected |= {occurrence for occurrence, mark in self._requests.items() if mark not in before}

    async def wait_for_answer(self, question: Question, *, has_input_key: bool = False) -> Mapping[str, Any]:
        """Return the answer that is passed to `answer`, before or after the question.

        `has_input_key` is as in `run_callback`.
        """
        self._open_keys.add(question.key)
        future = self._answer_future(question.key)
        if not future.done():
            self.awaiting_answer[question.key] = question
        try:
            await asyncio.wait([future])
        finally:
            self.awaiting_answer.pop(question.key, None)
        if not has_input_key:
            self._answers.pop(question.key, None)
        self._open_keys.discard(question.key)
        return future.result()

    def answer(self, key: str, answer: Mapping[str, Any]) -> None:
        """Answer a question by its key.

        The answer is stored until the server asks again, since the server asks only while a caller waits.

        Raises:
            InvalidValue: the task has no such open question. If the answer were stored anyway, it would consent to the
                next question with the same content.
        """
        if key not in self._open_keys:
            raise InvalidValue(
                f"the task has no open question {key!r}: poll it again, and answer a question that is open"
            )
        self.awaiting_answer.pop(key, None)
        future = self._answer_future(key)
        if not future.done():
            future.set_result(answer)

    def resume(self) -> None:
        """Note that a caller waits for the task."""
        self._has_waiters = True

    def abandon(self) -> None:
        """Note that no caller waits for the task any more, and cancel callbacks that can't be answered just now.

        Callbacks that can be answered continue: the server knows that it has asked, and does not ask again soon.
        """
        self._has_waiters = False
        self.cancel_disconnected()

    def cancel_disconnected(self, in_progress_before: frozenset[QuestionOccurrence] | None = None) -> None:
        """Cancel callbacks that were disconnected: another client has answered their questions.

        `in_progress_before` are the callbacks that ran before the task was polled. The poll does not cover later ones.
        """
        stale = self._callbacks.keys() - (self._requests.keys() - self._disconnected)
        for occurrence in stale if in_progress_before is None else stale & in_progress_before:
            self._stop(occurrence)
        for key in self._open_keys - self.awaiting_answer.keys():
            self._open_keys.discard(key)
            self._answers.pop(key, None)

    def _stop(self, occurrence: QuestionOccurrence) -> None:
        running = self._callbacks.pop(occurrence, None)
        if running is not None:
            running.cancel()

    def _answer_future(self, key: str) -> "asyncio.Future[Mapping[str, Any]]":
        return self._answers.setdefault(key, asyncio.get_running_loop().create_future())


Answer = dict[str, Any]

ANSWER_GRACE_PERIOD = 60.0
"""Seconds that a server may take to process an acknowledged answer.

A question that is still open after this was not answered, or its answer was lost, so it is asked again.
"""


class PendingInputs2026:
    """The questions of one task of 2026-07-28."""

    def __init__(self, clock: Clock) -> None:
        self.answers: dict[str, Answer] = {}
        """The answers of callbacks, by the keys of the questions.

        They are stored because an answer may be lost in transit.
        """
        self._clock = clock
        self._in_flight: Counter[str] = Counter()
        """The number of answers in flight, by the keys of their questions."""
        self._acknowledged_at: dict[str, float] = {}
        """When the server last acknowledged an answer."""
        self._callbacks: dict[str, asyncio.Task[Answer]] = {}

    @property
    def in_progress(self) -> frozenset[str]:
        """The keys of the questions whose callbacks are running."""
        return frozenset(self._callbacks)

    async def run_callback(self, key: str, callback: Callable[[], Coroutine[Any, Any, Answer]]) -> None:
        """Run a callback until there is an answer, or join the one that is running. Raises what the callback raises."""
        running = self._callbacks.get(key)
        if running is None:
            running = self._callbacks[key] = asyncio.create_task(self._run(key, callback))
            # This runs before any waiter resumes, and even if there is no waiter left.
            running.add_done_callback(partial(self._store_answer, key))
        await asyncio.wait([running])
        running.result()

    @contextmanager
    def sending(self, keys: Iterable[str]) -> Generator[None]:
        """Mark the answers as in flight. If sending fails, they count as not sent."""
        keys = set(keys)
        self._in_flight.update(keys)
        try:
            yield
            self._acknowledged_at |= dict.fromkeys(keys, self._clock.monotonic())
        finally:
            self._in_flight.subtract(keys)

    def is_answered(self, key: str) -> bool:
        """Return whether the question was answered. A server may still report it until it has processed the answer."""
        acknowledged_at = self._acknowledged_at.get(key)
        is_recent = acknowledged_at is not None and self._clock.monotonic() - acknowledged_at < ANSWER_GRACE_PERIOD
        return is_recent or self._in_flight[key] > 0

    def cancel(self, keys: Iterable[str]) -> None:
        """Cancel the callbacks of these questions."""
        for key in keys:
            running = self._callbacks.pop(key, None)
            if running is not None:
                running.cancel()

    async def _run(self, key: str, callback: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        try:
            return await callback()
        except asyncio.CancelledError as error:
            if self._callbacks.get(key) is not asyncio.current_task():
                raise
            # The callback cancelled itself. If the cancellation were passed on, the question would be asked
            # again and again.
            raise MCPError(INTERNAL_ERROR, CALLBACK_CANCELLED) from error

    def _store_answer(self, key: str, running: asyncio.Task[Answer]) -> None:
        if self._callbacks.get(key) is running:
            del self._callbacks[key]
        if not running.cancelled() and running.exception() is None:
            self.answers[key] = running.result()
