"""Questions of a task whose caller waits on a connection that takes requests, as before 2026: asked there and then.

Several may wait for one task, on one connection or on many. Each question is put to one of them, and to the next only
when that one has gone, which may still answer: somebody may be thinking about it. If a question is answered in another
way meanwhile, it is withdrawn.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress

from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types import CONNECTION_CLOSED

from raincheck.core.content import InputRequest
from raincheck.core.payload import Json, decode
from raincheck.core.records import Task, TaskId
from raincheck.engine.answers import missing_capability
from raincheck.engine.timing import first_of, pause_after
from raincheck.errors import IllegalTransition, InvalidValue, ProtocolError, RaincheckError, StoreUnavailable
from raincheck.server.callers import declared_capabilities
from raincheck.server.client_tasks import put
from raincheck.server.presence import CallerGone, is_gone, until_gone
from raincheck.server.running import Running
from raincheck.server.sdk import AnyContext, channel_of, connection_of
from raincheck.server.watching import Watching
from raincheck.wire import codes, g1
from raincheck.wire.questions import request_of

logger = logging.getLogger(__name__)

LOST = "Connection closed"
"""What the SDK says of requests that were under way when the connection was closed."""


class _Turn:
    """Who is being asked a question, after whom."""

    def __init__(self, ctx: AnyContext, before: "_Turn | None") -> None:
        self.ctx = ctx
        self.before = before
        self.job = asyncio.current_task()
        self.is_over = asyncio.Event()


class Asking:
    """Asks callers what their tasks ask."""

    def __init__(self, running: Running, watching: Watching) -> None:
        self._running = running
        self._watching = watching
        self._turns: dict[tuple[TaskId, str], _Turn] = {}
        """Whose turn it is, for each question."""
        self._taken: set[_Turn] = set()
        """With those who are gone, and may still answer."""
        self._left: set[asyncio.Future[None]] = set()
        """What goes on for callers that have gone. Held here, or nobody would."""

    @asynccontextmanager
    async def beside(self, ctx: AnyContext, task: Task, *, is_seen: bool) -> AsyncGenerator[None]:
        """Ask the caller what its task asks, while it waits. One that sees its task is told which one asks."""
        job = asyncio.ensure_future(self._ask_until_end(ctx, task, is_seen=is_seen))
        is_left = False
        try:
            yield
        except CallerGone:
            is_left = any(turn.ctx is ctx for turn in self._taken)
            raise
        finally:
            if is_left:
                # What it was asked last may still be answered, for as long as its session lasts.
                connection_of(ctx).exit_stack.callback(job.cancel)
                self._left.add(job)
                job.add_done_callback(self._left.discard)
            else:
                job.cancel()

    async def _ask_until_end(self, ctx: AnyContext, task: Task, *, is_seen: bool) -> None:
        """Ask one question after the other, until the task has ended."""
        asked, job, settled = "", None, set[str]()
        try:
            async with aclosing(self._watching.follow(task)) as views:
                async for view in views:
                    # What was seen may be older than what has been answered since.
                    open_ones = {one.key: one for one in view.inputs if one.is_open and one.key not in settled}
                    if job is not None and asked not in open_ones:
                        job.cancel()
                        job = None
                    askable = [one for one in open_ones.values() if _can_be_asked(ctx, one)]
                    if askable and (job is None or job.done()):
                        asked = askable[0].key
                        job = asyncio.ensure_future(self._ask(ctx, task, askable[0], settled, is_seen=is_seen))
        except RaincheckError as error:
            logger.debug("task %s: nobody is asked any more: %s", task.shown_id, error)
        finally:
            if job is not None:
                job.cancel()

    async def _ask(
        self, ctx: AnyContext, task: Task, question: InputRequest, settled: set[str], *, is_seen: bool
    ) -> None:
        try:
            await self._put(ctx, task, question, settled, is_seen=is_seen)
        except Exception:
            # It stays open, for whoever comes next.
            logger.exception("task %s: %r could not be asked", task.shown_id, question.key)

    async def _put(
        self, ctx: AnyContext, task: Task, question: InputRequest, settled: set[str], *, is_seen: bool
    ) -> None:
        """Ask one question, when it is this caller's turn. If it leaves meanwhile, the question stays open."""
        request = g1.question(question, task.id) if is_seen else request_of(question)
        async with self._turn(ctx, task, question):
            channel = channel_of(ctx)
            if channel is None or await is_gone(ctx) or not await self._is_open(task, question):
                return
            try:
                answer = await put(channel, request, ctx, self._running.options.clock)
            except MCPError as error:
                if _is_lost(error):
                    return
                await self._keep(task, question.key, _as_ours(error))
            else:
                await self._keep(task, question.key, answer)
            settled.add(question.key)

    @asynccontextmanager
    async def _turn(self, ctx: AnyContext, task: Task, question: InputRequest) -> AsyncGenerator[None]:
        """Be the one who is asked: when nobody else is, or as soon as that one is gone."""
        place = task.id, question.key
        while (other := self._turns.get(place)) is not None:
            await first_of(other.is_over.wait(), until_gone(other.ctx, self._running.options.clock))
            if not other.is_over.is_set() and self._turns.get(place) is other:
                break
        if other is not None and other.before is not None and other.before.job is not None:
            # Of those who are gone, only the last is waited for.
            other.before.job.cancel()
        turn = self._turns[place] = _Turn(ctx, other)
        self._taken.add(turn)
        try:
            yield
        finally:
            self._taken.discard(turn)
            turn.is_over.set()
            if self._turns.get(place) is turn:
                del self._turns[place]

    async def _is_open(self, task: Task, question: InputRequest) -> bool:
        """Whether it still is: somebody whose turn it was may just have answered."""
        view = await self._running.engine.view(task.id, owner=task.owner)
        return any(one.key == question.key and one.is_open for one in view.inputs)

    async def _keep(self, task: Task, key: str, answer: Mapping[str, Json] | ProtocolError) -> None:
        """Keep what the caller said. It took the trouble, so a store that is away for a while is waited for."""
        engine, tries = self._running.engine, 0
        while True:
            try:
                # It may have ended meanwhile: then nobody needs the answer.
                with suppress(IllegalTransition):
                    if isinstance(answer, ProtocolError):
                        await engine.refuse(task.id, key, answer, owner=task.owner)
                    else:
                        await engine.answer(task.id, {key: answer}, owner=task.owner)
            except StoreUnavailable:
                tries += 1
                await asyncio.sleep(pause_after(tries))
            except InvalidValue as error:
                # Asked again, it would say the same.
                answer = ProtocolError(str(error), codes.INVALID_PARAMS)
            else:
                return


def _can_be_asked(ctx: AnyContext, question: InputRequest) -> bool:
    """Whether this caller said that it can be asked such things. Another one may."""
    declared = declared_capabilities(ctx.session.client_capabilities)
    return missing_capability(declared, question.kind, decode(question.request)) is None


def _is_lost(error: MCPError) -> bool:
    """Whether the question never got there, or the answer never came: said by the SDK, and not by the caller."""
    told = error.error
    return isinstance(error, NoBackChannelError) or (told.code, told.message) == (CONNECTION_CLOSED, LOST)


def _as_ours(error: MCPError) -> ProtocolError:
    return ProtocolError(error.error.message, error.error.code, error.error.data)
