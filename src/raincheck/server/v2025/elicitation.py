"""Questions of a task whose caller waits on a connection that takes requests, as before 2026: asked there and then.

Several may wait for one task, on one connection or on many. Each question is put to one of them, and to the next only
when that one has gone or waits no longer, and may still answer: somebody may be thinking about it. If a question is
answered in another way meanwhile, it is withdrawn.

Whose turn it is to be asked a question: one caller's at a time, and the next one's when that one is gone.

One whose wait is over, and whose user has the question still, is not asked again on its connection. That keeps nobody
else: it may have gone for good, and over HTTP nobody would tell us.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TypeAlias, TypeVar

from mcp.server.connection import Connection
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types import CONNECTION_CLOSED

from raincheck._async import see_through
from raincheck.clock import Clock
from raincheck.core.payload import Json, decode
from raincheck.core.policies import pause_after
from raincheck.core.records import InputRequest, Task, TaskId, View
from raincheck.engine.inputs import missing_capability
from raincheck.errors import IllegalTransition, InvalidValue, ProtocolError, RaincheckError, StoreUnavailable
from raincheck.server.disconnect import CallerGone, is_gone, until_away
from raincheck.server.identity import declared_capabilities
from raincheck.server.runtime import Running
from raincheck.server.sdk_compat import AnyContext, connection_of, is_closing
from raincheck.server.shared_follower import Watching
from raincheck.server.v2025.client_tasks import Line, put
from raincheck.tracebacks import text_logger
from raincheck.wire import errors, v2025
from raincheck.wire.fields import Request, request_of

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


logger = text_logger(__name__)

T = TypeVar("T")


class Conversation:
    """What one caller is asked that waits for its task."""

    def __init__(self, ctx: AnyContext, task: Task, *, is_seen: bool) -> None:
        self.ctx = ctx
        self.task = task
        self.line = Line(ctx, task.owner)
        self.is_seen = is_seen
        self.key = ""
        """Of the question that it is asked, or is to be when it is its turn."""
        self.job: asyncio.Future[None] | None = None
        self.is_put = False
        """The question is before it now."""
        self.is_left = False
        """It is gone, and asked nothing any more. What it was asked last it may still answer."""
        self.turn: Turn | None = None
        """Its turn to be asked, while it has it."""

    def request(self, question: InputRequest) -> Request:
        """The question, for a caller that sees its task with a word of which one asks."""
        return v2025.question(question, self.task.id) if self.is_seen else request_of(question)

    def leave(self, *, is_there: bool = False) -> None:
        """The caller waits no longer. If a question is before it, that may still be answered.

        One that is there, and has only had an answer to its request, will probably answer.
        """
        self.is_left = self.is_put and self.job is not None
        if is_there and self.is_left and self.turn is not None:
            self.turn.hold_for_now()

    def withdraw(self) -> None:
        if self.job is not None:
            self.job.cancel()
            self.job = None


class Asking:
    """Asks callers what their tasks ask."""

    def __init__(self, running: Running, watching: Watching) -> None:
        self._running = running
        self._watching = watching
        self._turns = Turns(running.options.clock)
        self._left: set[asyncio.Future[None]] = set()
        """What goes on for callers that are gone. Each has a turn, of which there are two for a question at most."""

    def is_asking(self, ctx: AnyContext, view: View) -> bool:
        """Whether what the task asks is before somebody on the connection of this request."""
        return any(self._turns.is_taken(ctx, (view.task.id, one.key)) for one in view.inputs)

    @asynccontextmanager
    async def beside(self, ctx: AnyContext, task: Task, *, is_seen: bool) -> AsyncGenerator["Conversation"]:
        """Ask the caller what its task asks, while it waits. One that sees its task is told which one asks."""
        talk = Conversation(ctx, task, is_seen=is_seen)
        job = asyncio.ensure_future(self._converse(talk))
        try:
            yield talk
        except CallerGone:
            talk.leave()
            raise
        finally:
            if talk.is_left and talk.job is not None:
                self._leave(job, talk.job)
            else:
                job.cancel()

    def _leave(self, job: "asyncio.Future[None]", asking: "asyncio.Future[None]") -> None:
        """Wait for the answer of somebody who is gone: until it comes, or the session ends, or nobody needs it."""
        self._left.add(job)
        asking.add_done_callback(lambda _: job.cancel())
        job.add_done_callback(self._left.discard)

    async def _converse(self, talk: Conversation) -> None:
        """Ask one question after the other, until the task has ended."""
        try:
            async with aclosing(self._watching.follow(talk.task)) as views:
                async for view in views:
                    waiting = [one for one in view.inputs if one.is_open]
                    if talk.key not in {one.key for one in waiting}:
                        talk.withdraw()
                    question = next((one for one in waiting if can_be_asked(talk.ctx, one)), None)
                    if question is not None and not talk.is_left and (talk.job is None or talk.job.done()):
                        talk.key = question.key
                        talk.job = asyncio.ensure_future(self._ask(talk, question))
        except RaincheckError as error:
            logger.debug("task %s: nobody is asked any more: %s", talk.task.shown_id, error)
        finally:
            talk.withdraw()

    async def _ask(self, talk: Conversation, question: InputRequest) -> None:
        """Ask a question, when it is this caller's turn. If that comes to nothing, it stays open for the next."""
        task = talk.task
        try:
            async with self._turns.taken(talk.ctx, (task.id, question.key)) as turn:
                if await is_gone(talk.ctx) or not await self._is_open(task, question):
                    return
                answer = await self._put(talk, question, turn)
                if answer is not None:
                    # The caller may leave as soon as it has answered. The question looks open to the next one until the
                    # answer is stored, so the turn lasts until then.
                    turn.hold()
                    keeping = asyncio.ensure_future(self._keep(task, question.key, answer))
                    self._running.hold(keeping)
                    await see_through(keeping)
        except Exception:
            logger.exception("task %s: %r could not be asked", task.shown_id, question.key)

    async def _put(
        self, talk: Conversation, question: InputRequest, turn: Turn
    ) -> Mapping[str, Json] | ProtocolError | None:
        """What the caller says to a question; None if it never will."""
        talk.is_put, talk.turn = True, turn
        try:
            return await put(talk.request(question), talk.line, self._running.options.clock, turn.hold)
        except MCPError as error:
            if _is_lost(talk.ctx, error):
                return None
            return ProtocolError(error.error.message, error.error.code, error.error.data)
        finally:
            talk.is_put, talk.turn = False, None

    async def _is_open(self, task: Task, question: InputRequest) -> bool:
        """Whether it still is: it may just have been answered, which whoever waits has not seen yet."""
        view = await _insist(lambda: self._running.engine.view(task.id, owner=task.owner))
        return any(one.key == question.key and one.is_open for one in view.inputs)

    async def _keep(self, task: Task, key: str, answer: Mapping[str, Json] | ProtocolError) -> None:
        """Keep what the caller said. If the task has ended meanwhile, nobody needs it."""
        with suppress(IllegalTransition):
            try:
                await _insist(lambda: self._write(task, key, answer))
            except InvalidValue as error:
                # Asked again, it would say the same.
                refused = ProtocolError(str(error), errors.INVALID_PARAMS)
                await _insist(lambda: self._write(task, key, refused))

    def _write(self, task: Task, key: str, answer: Mapping[str, Json] | ProtocolError) -> Awaitable[Task]:
        engine = self._running.engine
        if isinstance(answer, ProtocolError):
            return engine.refuse(task.id, key, answer, owner=task.owner)
        return engine.answer(task.id, {key: answer}, owner=task.owner)


async def _insist(work: Callable[[], Awaitable[T]]) -> T:
    """Do something to the store. Somebody thought about an answer, so one that is away for a while is waited for."""
    tries = 0
    while True:
        try:
            return await work()
        except StoreUnavailable:
            tries += 1
            await asyncio.sleep(pause_after(tries))


def can_be_asked(ctx: AnyContext, question: InputRequest) -> bool:
    """Whether this caller said that it can be asked such things. Another one may."""
    declared = declared_capabilities(ctx.session.client_capabilities)
    return missing_capability(declared, question.kind, decode(question.request)) is None


def _is_lost(ctx: AnyContext, error: MCPError) -> bool:
    """Whether the question never got there, or the answer never came. A caller may say the same of itself."""
    is_closed = error.error.code == CONNECTION_CLOSED and is_closing(ctx)
    return isinstance(error, NoBackChannelError) or is_closed
