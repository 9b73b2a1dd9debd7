"""Send input requests to waiting callers over connections that accept requests, as before 2026-07-28.

Several callers may wait for one task, on one connection or on several. Each question is sent to one caller, and to the
next caller only when the first is gone or no longer waits. The first caller may still answer, because its user may be
thinking about the question. If a question is answered in another way meanwhile, it is withdrawn.

A `QuestionLock` is the right to be asked a question. One caller has it at a time, and the next caller gets it when that
caller is gone. A caller whose wait has ended, but whose user still has the question, is not asked again on its
connection. Callers on other connections need not wait for that caller: it may be gone for good, and over HTTP the
server is not notified.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from mcp.server.connection import Connection
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types import CONNECTION_CLOSED

from raincheck._async import retry_while_unavailable, run_to_completion
from raincheck.clock import Clock
from raincheck.core.records import InputRequest, Task, TaskId, View
from raincheck.core.values import Json
from raincheck.errors import IllegalTransition, InvalidValue, ProtocolError, RaincheckError
from raincheck.server.caller import Caller
from raincheck.server.disconnect import RECONNECT_TIMEOUT, CallerDisconnected, is_disconnected, wait_until_disconnected
from raincheck.server.runtime import ServerRuntime
from raincheck.server.sdk_compat import AnyContext, connection_of, is_closing
from raincheck.server.v2025.client_tasks import CallerLink, request_input
from raincheck.server.v2025.notifications import SharedFollower
from raincheck.tracebacks import text_logger
from raincheck.wire import errors, v2025
from raincheck.wire.fields import request_of

REASK_AFTER = 600.0
"""Seconds that a user has to answer a question before it is asked again."""

QuestionId: TypeAlias = tuple[TaskId, str]
"""Identifies a question by its task and its key."""


class QuestionLock:
    """The right of one caller to be asked a question, linked to the previous lock, whose caller is gone."""

    def __init__(self, ctx: AnyContext, previous: "QuestionLock | None", clock: Clock) -> None:
        self.previous = previous
        self._clock = clock
        self.connection = connection_of(ctx)
        self.holder = asyncio.current_task()
        self.is_over = False
        self._is_free = asyncio.Event()
        """Set when the lock is released, or its caller stays away."""
        self._is_free_elsewhere = asyncio.Event()
        """Set in the same cases, and when its caller no longer waits."""
        # One background task watches the caller, no matter how many callers wait for the lock.
        away = wait_until_disconnected(ctx, clock, reconnect_timeout=RECONNECT_TIMEOUT)
        self._watch_task = asyncio.ensure_future(away)
        self._watch_task.add_done_callback(self._free)

    def free_event(self, connection: Connection) -> asyncio.Event:
        """Return the event that is set while a caller on this connection may be asked."""
        return self._is_free if connection is self.connection else self._is_free_elsewhere

    def hold(self) -> None:
        """Hold the lock even if the caller's request ends. The caller is reachable, so no other caller is asked."""
        self._watch_task.remove_done_callback(self._free)
        self._watch_task.cancel()
        self._is_free.clear()
        self._is_free_elsewhere.clear()

    def hold_until_reask(self) -> None:
        """Hold the lock for a connection whose caller still has the question after its request has been answered.

        The caller is not asked again in its next request. After `REASK_AFTER` the lock is free again.
        """
        self.hold()
        self._is_free_elsewhere.set()
        self._watch_task = asyncio.ensure_future(self._clock.sleep(REASK_AFTER))
        self._watch_task.add_done_callback(self._free)

    def _free(self, _: "asyncio.Future[None] | None" = None) -> None:
        self._is_free.set()
        self._is_free_elsewhere.set()

    def release(self) -> None:
        self.is_over = True
        self.previous = None
        self._watch_task.cancel()
        self._free()


class QuestionLocks:
    """The locks of all questions in one process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._locks: dict[QuestionId, QuestionLock] = {}

    def is_held(self, ctx: AnyContext, question: QuestionId) -> bool:
        """Return whether a caller is being asked on the connection of this request."""
        connection = connection_of(ctx)
        return any(
            lock.connection is connection and not lock.free_event(connection).is_set() for lock in self._all(question)
        )

    @asynccontextmanager
    async def acquire(self, ctx: AnyContext, question: QuestionId) -> AsyncGenerator[QuestionLock]:
        """Hold the lock on a question. A previous caller that is gone may still answer, and is awaited concurrently."""
        connection = connection_of(ctx)
        while (free_event := self._blocking_event(connection, question)) is not None:
            await free_event.wait()
        current = self._locks.get(question)
        if current is not None and current.previous is not None and current.previous.holder is not None:
            # Only the last of the callers that are gone is awaited.
            current.previous.holder.cancel()
            current.previous = None
        lock = self._locks[question] = QuestionLock(ctx, current, self._clock)
        try:
            yield lock
        finally:
            previous = lock.previous
            lock.release()
            if self._locks.get(question) is lock:
                del self._locks[question]
                if previous is not None and not previous.is_over:
                    # This caller still has the question, and must not be asked twice.
                    self._locks[question] = previous

    def _blocking_event(self, connection: Connection, question: QuestionId) -> asyncio.Event | None:
        """Return the event to await before a caller on this connection is asked; None if it may be asked now."""
        events = (lock.free_event(connection) for lock in self._all(question))
        return next((event for event in events if not event.is_set()), None)

    def _all(self, question: QuestionId) -> Iterator[QuestionLock]:
        """Yield the lock and its previous lock, which may still be held."""
        lock = self._locks.get(question)
        while lock is not None:
            yield lock
            lock = lock.previous


logger = text_logger(__name__)

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class PendingElicitation:
    """Tracks the questions that one waiting caller is asked about a task."""

    caller: Caller
    task: Task
    names_task: bool
    key: str = ""
    """Key of the question that the caller is asked, or that it will be asked when it gets the lock."""
    question_task: asyncio.Future[None] | None = None
    is_sent: bool = False
    """Whether the caller has the question now."""
    is_abandoned: bool = False
    """Whether the caller is gone and is asked no further questions. It may still answer the last one."""
    lock: QuestionLock | None = None
    """The caller's lock on the question, while it holds it."""

    def abandon(self, *, is_connected: bool = False) -> None:
        """Record that the caller no longer waits. If it has a question, it may still answer it.

        A caller that is still connected, and has only received the answer to its request, will probably answer.
        """
        self.is_abandoned = self.is_sent and self.question_task is not None
        if is_connected and self.is_abandoned and self.lock is not None:
            self.lock.hold_until_reask()

    def withdraw(self) -> None:
        if self.question_task is not None:
            self.question_task.cancel()
            self.question_task = None


class ElicitationBroker:
    """Sends the input requests of tasks to the callers that wait for them."""

    def __init__(self, runtime: ServerRuntime, follower: SharedFollower) -> None:
        self._runtime = runtime
        self._follower = follower
        self._locks = QuestionLocks(runtime.clock)
        self._abandoned: set[asyncio.Future[None]] = set()
        """Background tasks that await callers that are gone. Each holds a lock; a question has at most two locks."""

    def is_asking(self, ctx: AnyContext, view: View) -> bool:
        """Return whether a caller on the connection of this request is being asked a question of the task."""
        return any(self._locks.is_held(ctx, (view.task.id, question.key)) for question in view.inputs)

    @asynccontextmanager
    async def ask_while_waiting(
        self, caller: Caller, task: Task, *, names_task: bool
    ) -> AsyncGenerator["PendingElicitation"]:
        """Ask the caller the questions of its task while it waits. With `names_task`, the requests name the task."""
        elicitation = PendingElicitation(caller, task, names_task)
        asking_task = asyncio.ensure_future(self._ask_open_questions(elicitation))
        try:
            yield elicitation
        except CallerDisconnected:
            elicitation.abandon()
            raise
        finally:
            if elicitation.is_abandoned and elicitation.question_task is not None:
                self._await_late_answer(asking_task, elicitation.question_task)
            else:
                asking_task.cancel()

    def _await_late_answer(self, asking_task: "asyncio.Future[None]", question_task: "asyncio.Future[None]") -> None:
        """Await the answer of a caller that is gone, until it arrives, the session ends, or it is not needed."""
        self._abandoned.add(asking_task)
        question_task.add_done_callback(lambda _: asking_task.cancel())
        asking_task.add_done_callback(self._abandoned.discard)

    async def _ask_open_questions(self, elicitation: PendingElicitation) -> None:
        """Ask the task's open questions one after the other until the task has ended."""
        try:
            async with aclosing(self._follower.follow(elicitation.task)) as views:
                async for view in views:
                    open_questions = [question for question in view.inputs if question.is_open]
                    if elicitation.key not in {question.key for question in open_questions}:
                        elicitation.withdraw()
                    question = next((one for one in open_questions if elicitation.caller.can_answer(one)), None)
                    if (
                        question is not None
                        and not elicitation.is_abandoned
                        and (elicitation.question_task is None or elicitation.question_task.done())
                    ):
                        elicitation.key = question.key
                        elicitation.question_task = asyncio.ensure_future(self._ask(elicitation, question))
        except RaincheckError as error:
            logger.debug("stopped asking the caller for input for task %s: %s", elicitation.task.log_id, error)
        finally:
            elicitation.withdraw()

    async def _ask(self, elicitation: PendingElicitation, question: InputRequest) -> None:
        """Ask a question when this caller gets the lock. Without an answer, it stays open for the next caller."""
        task = elicitation.task
        try:
            async with self._locks.acquire(elicitation.caller.ctx, (task.id, question.key)) as lock:
                if await is_disconnected(elicitation.caller.ctx) or not await self._is_open(task, question):
                    return
                answer = await self._send_question(elicitation, question, lock)
                if answer is not None:
                    # The caller may disconnect as soon as it has answered. Hold the lock until the answer is stored,
                    # because until then the question looks open to the next caller.
                    lock.hold()
                    store_task = asyncio.ensure_future(self._store_answer(task, question.key, answer))
                    self._runtime.finish_before_stop(store_task)
                    await run_to_completion(store_task)
        except Exception:
            logger.exception("failed to ask question %r of task %s", question.key, task.log_id)

    async def _send_question(
        self, elicitation: PendingElicitation, question: InputRequest, lock: QuestionLock
    ) -> Mapping[str, Json] | ProtocolError | None:
        """Return the caller's answer to a question; None if it will never answer."""
        # A caller that knows the task gets a reference to it.
        task, link = elicitation.task, CallerLink(elicitation.caller.ctx, elicitation.task.owner)
        request = v2025.input_request(question, task.id) if elicitation.names_task else request_of(question)
        elicitation.is_sent, elicitation.lock = True, lock
        try:
            return await request_input(request, link, self._runtime.clock, lock.hold)
        except MCPError as error:
            if _is_lost(elicitation.caller.ctx, error):
                return None
            return ProtocolError(error.error.message, error.error.code, error.error.data)
        finally:
            elicitation.is_sent, elicitation.lock = False, None

    async def _is_open(self, task: Task, question: InputRequest) -> bool:
        """Return whether a question is still open. The waiting caller's view may not show a stored answer yet."""
        view = await retry_while_unavailable(lambda: self._runtime.engine.view(task.id, owner=task.owner))
        return any(other.key == question.key and other.is_open for other in view.inputs)

    async def _store_answer(self, task: Task, key: str, answer: Mapping[str, Json] | ProtocolError) -> None:
        """Store the caller's answer. If the task has ended meanwhile, drop the answer."""
        with suppress(IllegalTransition):
            try:
                # However long it takes: no user's answer is lost.
                await retry_while_unavailable(lambda: self._write(task, key, answer))
            except InvalidValue as error:
                # If it were asked again, the caller would give the same answer.
                rejection = ProtocolError(str(error), errors.INVALID_PARAMS)
                await retry_while_unavailable(lambda: self._write(task, key, rejection))

    def _write(self, task: Task, key: str, answer: Mapping[str, Json] | ProtocolError) -> Awaitable[Task]:
        engine = self._runtime.engine
        if isinstance(answer, ProtocolError):
            return engine.answer_with_error(task.id, key, answer, owner=task.owner)
        return engine.answer(task.id, {key: answer}, owner=task.owner)


def _is_lost(ctx: AnyContext, error: MCPError) -> bool:
    """Return whether the question or its answer was lost, and not answered with an error of the same code."""
    is_closed = error.error.code == CONNECTION_CLOSED and is_closing(ctx)
    return isinstance(error, NoBackChannelError) or is_closed
