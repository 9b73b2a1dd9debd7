"""Send input requests to callers that wait for a task on a connection that accepts requests, as before 2026-07-28.

Several callers may wait for one task, on one connection or on many. Each question is sent to one of them, and to the
next one only when that caller is gone or waits no longer. The first caller may still answer: its user may be thinking
about it. If a question is answered in another way meanwhile, it is withdrawn.

A `QuestionLock` is the right to be asked a question: one caller has it at a time, and the next one when that caller is
gone. A caller whose wait is over, and whose user still has the question, is not asked again on its connection. Callers
on other connections need not wait for it: it may have gone for good, and over HTTP the server is not notified.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TypeAlias, TypeVar

from mcp.server.connection import Connection
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types import CONNECTION_CLOSED

from raincheck._async import run_to_completion
from raincheck.clock import Clock
from raincheck.core.payload import Json, decode
from raincheck.core.policies import backoff_seconds
from raincheck.core.records import InputRequest, Task, TaskId, View
from raincheck.engine.inputs import missing_capability
from raincheck.errors import IllegalTransition, InvalidValue, ProtocolError, RaincheckError, StoreUnavailable
from raincheck.server.disconnect import CallerDisconnected, is_disconnected, wait_until_away
from raincheck.server.identity import declared_capabilities
from raincheck.server.runtime import ServerRuntime
from raincheck.server.sdk_compat import AnyContext, connection_of, is_closing
from raincheck.server.shared_follower import SharedFollower
from raincheck.server.v2025.client_tasks import CallerLink, request_input
from raincheck.tracebacks import text_logger
from raincheck.wire import errors, v2025
from raincheck.wire.fields import CallerRequest, request_of

REASK_AFTER = 600.0
"""Seconds for a user to answer a question. After that, it is asked again."""

QuestionId: TypeAlias = tuple[TaskId, str]
"""Identifies a question, by its task and its key."""


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
        self._is_free_for_others = asyncio.Event()
        """Likewise, and when its caller no longer waits."""
        # One background task watches the caller, however many wait for the lock.
        self._looking = asyncio.ensure_future(wait_until_away(ctx, clock))
        self._looking.add_done_callback(self._free)

    def free_event(self, connection: Connection) -> asyncio.Event:
        """Return the event that is set while a caller on that connection may be asked."""
        return self._is_free if connection is self.connection else self._is_free_for_others

    def hold(self) -> None:
        """Hold the lock, wherever the caller's request is: the caller is in touch, so no other caller need be asked."""
        self._looking.remove_done_callback(self._free)
        self._looking.cancel()
        self._is_free.clear()
        self._is_free_for_others.clear()

    def hold_until_reask(self) -> None:
        """Hold the lock for a connection whose caller has the question, though its request has been answered.

        To ask again in its next request would be too much. After `REASK_AFTER` the lock is free again.
        """
        self.hold()
        self._is_free_for_others.set()
        self._looking = asyncio.ensure_future(self._clock.sleep(REASK_AFTER))
        self._looking.add_done_callback(self._free)

    def _free(self, _: "asyncio.Future[None] | None" = None) -> None:
        self._is_free.set()
        self._is_free_for_others.set()

    def release(self) -> None:
        self.is_over = True
        self.previous = None
        self._looking.cancel()
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
            turn.connection is connection and not turn.free_event(connection).is_set() for turn in self._all(question)
        )

    @asynccontextmanager
    async def acquire(self, ctx: AnyContext, question: QuestionId) -> AsyncGenerator[QuestionLock]:
        """Hold the lock on a question. A previous caller that is gone may still answer, and is awaited concurrently."""
        connection = connection_of(ctx)
        while (freedom := self._freedom(connection, question)) is not None:
            await freedom.wait()
        other = self._locks.get(question)
        if other is not None and other.previous is not None and other.previous.holder is not None:
            # Of the callers that are gone, only the last is awaited.
            other.previous.holder.cancel()
            other.previous = None
        turn = self._locks[question] = QuestionLock(ctx, other, self._clock)
        try:
            yield turn
        finally:
            before = turn.previous
            turn.release()
            if self._locks.get(question) is turn:
                del self._locks[question]
                if before is not None and not before.is_over:
                    # This caller still has the question, and must not be asked twice.
                    self._locks[question] = before

    def _freedom(self, connection: Connection, question: QuestionId) -> asyncio.Event | None:
        """Return the event to wait for before a caller on this connection is asked; None if it may be asked."""
        events = (turn.free_event(connection) for turn in self._all(question))
        return next((event for event in events if not event.is_set()), None)

    def _all(self, question: QuestionId) -> Iterator[QuestionLock]:
        """Yield the lock, and the one before it, which may still be held."""
        turn = self._locks.get(question)
        while turn is not None:
            yield turn
            turn = turn.previous


logger = text_logger(__name__)

T = TypeVar("T")


class PendingElicitation:
    """The questions of a task that one waiting caller is asked."""

    def __init__(self, ctx: AnyContext, task: Task, *, is_seen: bool) -> None:
        self.ctx = ctx
        self.task = task
        self.link = CallerLink(ctx, task.owner)
        self.is_seen = is_seen
        self.key = ""
        """Key of the question that the caller is asked, or will be when it gets the lock."""
        self.question_task: asyncio.Future[None] | None = None
        self.is_sent = False
        """Whether the caller has the question now."""
        self.is_abandoned = False
        """Whether the caller is gone and is asked nothing more. It may still answer the last question."""
        self.lock: QuestionLock | None = None
        """The caller's lock on the question, while it holds it."""

    def request(self, question: InputRequest) -> CallerRequest:
        """Return the request that asks the question. It names the task if the caller sees the task."""
        return v2025.input_request(question, self.task.id) if self.is_seen else request_of(question)

    def abandon(self, *, is_connected: bool = False) -> None:
        """Record that the caller waits no longer. If it has a question, it may still answer that.

        A caller that is connected, and has only received the answer to its request, will probably answer.
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
        self._locks = QuestionLocks(runtime.options.clock)
        self._abandoned: set[asyncio.Future[None]] = set()
        """Background tasks for callers that are gone. Each holds a lock, of which a question has at most two."""

    def is_asking(self, ctx: AnyContext, view: View) -> bool:
        """Return whether a question of the task is with a caller on the connection of this request."""
        return any(self._locks.is_held(ctx, (view.task.id, one.key)) for one in view.inputs)

    @asynccontextmanager
    async def ask_while_waiting(
        self, ctx: AnyContext, task: Task, *, is_seen: bool
    ) -> AsyncGenerator["PendingElicitation"]:
        """Ask the caller the questions of its task, while it waits. With `is_seen`, a question names the task."""
        talk = PendingElicitation(ctx, task, is_seen=is_seen)
        job = asyncio.ensure_future(self._converse(talk))
        try:
            yield talk
        except CallerDisconnected:
            talk.abandon()
            raise
        finally:
            if talk.is_abandoned and talk.question_task is not None:
                self._await_late_answer(job, talk.question_task)
            else:
                job.cancel()

    def _await_late_answer(self, job: "asyncio.Future[None]", asking: "asyncio.Future[None]") -> None:
        """Wait for the answer of a caller that is gone, until it comes, or the session ends, or it is not needed."""
        self._abandoned.add(job)
        asking.add_done_callback(lambda _: job.cancel())
        job.add_done_callback(self._abandoned.discard)

    async def _converse(self, elicitation: PendingElicitation) -> None:
        """Ask one question after the other, until the task has ended."""
        try:
            async with aclosing(self._follower.follow(elicitation.task)) as views:
                async for view in views:
                    waiting = [one for one in view.inputs if one.is_open]
                    if elicitation.key not in {one.key for one in waiting}:
                        elicitation.withdraw()
                    question = next((one for one in waiting if can_be_asked(elicitation.ctx, one)), None)
                    if (
                        question is not None
                        and not elicitation.is_abandoned
                        and (elicitation.question_task is None or elicitation.question_task.done())
                    ):
                        elicitation.key = question.key
                        elicitation.question_task = asyncio.ensure_future(self._ask(elicitation, question))
        except RaincheckError as error:
            logger.debug("task %s: nobody is asked any more: %s", elicitation.task.log_id, error)
        finally:
            elicitation.withdraw()

    async def _ask(self, elicitation: PendingElicitation, question: InputRequest) -> None:
        """Ask a question, when this caller gets the lock. Without an answer, it stays open for the next caller."""
        task = elicitation.task
        try:
            async with self._locks.acquire(elicitation.ctx, (task.id, question.key)) as turn:
                if await is_disconnected(elicitation.ctx) or not await self._is_open(task, question):
                    return
                answer = await self._send_question(elicitation, question, turn)
                if answer is not None:
                    # The caller may disconnect as soon as it has answered. The question looks open to the next caller
                    # until the answer is stored, so the lock is held until then.
                    turn.hold()
                    keeping = asyncio.ensure_future(self._store_answer(task, question.key, answer))
                    self._runtime.finish_before_stop(keeping)
                    await run_to_completion(keeping)
        except Exception:
            logger.exception("task %s: %r could not be asked", task.log_id, question.key)

    async def _send_question(
        self, elicitation: PendingElicitation, question: InputRequest, lock: QuestionLock
    ) -> Mapping[str, Json] | ProtocolError | None:
        """Return the caller's answer to a question; None if it will never answer."""
        elicitation.is_sent, elicitation.lock = True, lock
        try:
            return await request_input(
                elicitation.request(question), elicitation.link, self._runtime.options.clock, lock.hold
            )
        except MCPError as error:
            if _is_lost(elicitation.ctx, error):
                return None
            return ProtocolError(error.error.message, error.error.code, error.error.data)
        finally:
            elicitation.is_sent, elicitation.lock = False, None

    async def _is_open(self, task: Task, question: InputRequest) -> bool:
        """Return whether a question is still open: an answer may be stored that the waiting caller has not seen yet."""
        view = await _retry_while_unavailable(lambda: self._runtime.engine.view(task.id, owner=task.owner))
        return any(one.key == question.key and one.is_open for one in view.inputs)

    async def _store_answer(self, task: Task, key: str, answer: Mapping[str, Json] | ProtocolError) -> None:
        """Store the caller's answer. If the task has ended meanwhile, it is not needed."""
        with suppress(IllegalTransition):
            try:
                await _retry_while_unavailable(lambda: self._write(task, key, answer))
            except InvalidValue as error:
                # Asked again, the caller would give the same answer.
                refused = ProtocolError(str(error), errors.INVALID_PARAMS)
                await _retry_while_unavailable(lambda: self._write(task, key, refused))

    def _write(self, task: Task, key: str, answer: Mapping[str, Json] | ProtocolError) -> Awaitable[Task]:
        engine = self._runtime.engine
        if isinstance(answer, ProtocolError):
            return engine.answer_with_error(task.id, key, answer, owner=task.owner)
        return engine.answer(task.id, {key: answer}, owner=task.owner)


async def _retry_while_unavailable(work: Callable[[], Awaitable[T]]) -> T:
    """Run a store operation, and retry while the store is unavailable: a user thought about the answer."""
    tries = 0
    while True:
        try:
            return await work()
        except StoreUnavailable:
            tries += 1
            await asyncio.sleep(backoff_seconds(tries))


def can_be_asked(ctx: AnyContext, question: InputRequest) -> bool:
    """Return whether this caller declared that it can be asked such a question. Another caller may be able to."""
    declared = declared_capabilities(ctx.session.client_capabilities)
    return missing_capability(declared, question.kind, decode(question.request)) is None


def _is_lost(ctx: AnyContext, error: MCPError) -> bool:
    """Return whether the question or its answer was lost. A caller may send the same error code itself."""
    is_closed = error.error.code == CONNECTION_CLOSED and is_closing(ctx)
    return isinstance(error, NoBackChannelError) or is_closed
