"""The store and the engine of a server, while it runs: opened with it, and closed with it.

How the tasks of a server are kept, run and served.

What a server that starts tells of the tasks that are there and that it can't run.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from os import PathLike
from typing import Any, get_args

from raincheck._async import see_through
from raincheck.clock import Clock, StoresClock
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner, Scope
from raincheck.core.records import Task
from raincheck.core.validation import check_name
from raincheck.engine import Engine, Settings, Toolbox
from raincheck.engine.settings import check_kind, check_seconds
from raincheck.errors import ConfigurationError, InvalidValue
from raincheck.server import audit
from raincheck.server.errors import InProtocolWords
from raincheck.server.identity import KEY_NAME as OWNERS
from raincheck.server.identity import Anonymous, OwnerFunction, owner_of
from raincheck.server.sdk_compat import AnyContext
from raincheck.server.v2025.cursors import KEY_NAME as CURSORS
from raincheck.server.wait_policy import Known, Pace
from raincheck.stores.base import Store
from raincheck.stores.factory import check_store_name, open_store
from raincheck.stores.requests import PAGE_LIMIT, TaskQuery
from raincheck.wire.fallback_text import Telling
from raincheck.wire.fallback_tools import PlainTools

logger = logging.getLogger(__name__)


async def tell_of_missing_tools(store: Store, namespace: str, toolbox: Toolbox, now: datetime) -> None:
    """Say which tasks wait for a tool that is not here: it may have got another name, or another version."""
    query = TaskQuery(Scope.within(namespace), phases=frozenset({Phase.QUEUED, Phase.PARKED}))
    page = await store.list_tasks(query, now=now, limit=PAGE_LIMIT)
    missing = Counter(task.tool for task in page.tasks if toolbox.find(task.tool) is None)
    for tool, count in missing.items():
        logger.warning(
            "at least %d waiting tasks need tool %r in version %r, which this server does not have: "
            "give a tool that name and version, or let a newer version say that it `continues` that one",
            count,
            tool.name,
            tool.version,
        )


PLAIN_WAIT = 45.0
"""Seconds: hosts give up after about a minute."""

LONGEST_PLAIN_WAIT = 3_600.0
"""Seconds, for hosts that were told to wait longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the author of a server has said. `Tasks` says what each of it means.

    Raises:
        ConfigurationError: it can't be like that.
    """

    store: str | PathLike[str] | None
    namespace: str
    settings: Settings
    clock: Clock
    works: bool
    owner: OwnerFunction | None
    anonymous: Anonymous
    plain_wait: float | None
    plain_tools: PlainTools

    def __post_init__(self) -> None:
        check_store_name(self.store)
        check_kind("works", self.works, bool)
        check_kind("settings", self.settings, Settings)
        check_kind("plain_tools", self.plain_tools, PlainTools)
        check_kind("namespace", self.namespace, str)
        if self.owner is not None and not callable(self.owner):
            raise ConfigurationError(f"owner is a function that says whose a request is, not {self.owner!r}")
        if self.anonymous not in get_args(Anonymous):
            raise ConfigurationError(f'anonymous is "id" or "session", not {self.anonymous!r}')
        if self.plain_wait is not None:
            check_seconds("plain_wait", self.plain_wait, least=0.1, most=LONGEST_PLAIN_WAIT)
        try:
            check_name(self.namespace, what="a namespace")
        except InvalidValue as error:
            raise ConfigurationError(str(error)) from error


UNSEEN_FOR = timedelta(days=1)
"""For a task that its caller does not see. One who was asked something and never came back can't even cancel it."""

GIVING_UP = 1.0
"""Seconds, when the server stops, for what callers left behind: calls to give up, answers to keep."""

NOT_RUNNING = "the tasks of this server do not run: they start when the server does, with its lifespan"


class Running:
    """What serves tasks, from the first connection that needs it to the last.

    Some transports enter a server's lifespan once, some for each connection. Either way there is one engine.
    """

    def __init__(self, options: Options, toolbox: Toolbox, expected: Callable[[str], float | None]) -> None:
        self.options = options
        self.pace = Pace(options.clock, lambda tool, passed: self.known(tool).left_after(passed))
        self.telling = None if options.plain_wait is None else Telling(options.plain_tools, options.plain_wait)
        """How callers without tasks are told of one; None if they wait for the result, however long it takes."""
        self._expected = expected
        self._toolbox = toolbox
        self._engine: Engine | None = None
        self._stopping: Engine | None = None
        self._is_hurried = False
        self._secrets = dict.fromkeys((OWNERS, CURSORS), b"")
        self._users = 0
        self.is_durable = False
        """Whether what is kept now outlives the server."""
        self._jobs: set[asyncio.Future[Any]] = set()
        self._stack = AsyncExitStack()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()

    def configure(self, options: Mapping[str, object], settings: Mapping[str, object]) -> None:
        """Have other options than those that were given at first, and other settings. None leaves one as it is.

        Raises:
            ConfigurationError: they can't be so, or they are in use.
        """
        if self._users:
            raise ConfigurationError("this server runs already: what it is to use is said before that")
        own: Any = {name: value for name, value in settings.items() if value is not None}
        said: Any = {name: value for name, value in options.items() if value is not None}
        self.options = replace(self.options, **said, settings=replace(self.options.settings, **own))

    @property
    def engine(self) -> Engine:
        """The engine.

        Raises:
            ConfigurationError: the server does not run.
        """
        if self._engine is None:
            raise ConfigurationError(NOT_RUNNING)
        return self._engine

    def known(self, tool: str) -> Known:
        """What is known of how long the calls of a tool take."""
        return Known.of(self.engine.durations.of(tool), self._expected(tool))

    def left_of(self, task: Task) -> float | None:
        """Seconds that a task usually has left; None if nobody knows."""
        passed = (self.options.clock.now() - task.created_at).total_seconds()
        return self.known(task.tool.name).left_after(passed)

    async def owner_of(self, ctx: AnyContext) -> Owner:
        """Whose request it is.

        Raises:
            MCPError: somebody whom we can't keep anything for.
        """
        with InProtocolWords(ctx.method):
            theirs = None if self.options.owner is None else self.options.owner(ctx)
            if isinstance(theirs, Awaitable):
                theirs = await theirs
            if theirs is not None:
                check_kind("what the server's `owner` function returns", theirs, Owner)
                return theirs
            return owner_of(ctx, self._secrets[OWNERS], by_session=self.options.anonymous == "session")

    def hold(self, job: "asyncio.Future[Any]") -> None:
        """Have something done before the engine stops, though whoever wanted it has left."""
        self._jobs.add(job)
        job.add_done_callback(self._let_go)

    def _let_go(self, job: "asyncio.Future[Any]") -> None:
        self._jobs.discard(job)
        error = None if job.cancelled() else job.exception()
        if error is not None:
            # Whoever waits for it hears of it too. There may be nobody.
            logger.debug("something that a caller left behind came to nothing: %r", error)

    @property
    def cursor_key(self) -> bytes:
        """What cursors are signed with."""
        return self._secrets[CURSORS]

    @asynccontextmanager
    async def entered(self, prepare: Callable[[], object]) -> AsyncGenerator[None]:
        """Be there while this is entered, by however many. `prepare` is called before anything starts."""
        # Neither is to be given up half-way: a store that stays open keeps its file, and its leases.
        try:
            await see_through(self._enter(prepare))
        except asyncio.CancelledError:
            # It has started, and is not wanted any more.
            await see_through(self._leave())
            raise
        try:
            yield
        finally:
            await see_through(self._leave())

    async def _enter(self, prepare: Callable[[], object]) -> None:
        async with self._changing():
            if not self._users:
                prepare()
                await self._start()
            self._users += 1

    async def _leave(self) -> None:
        async with self._changing():
            self._users -= 1
            if not self._users:
                await self._stop()

    async def _start(self) -> None:
        options, self._is_hurried = self.options, False
        # It refuses tools that are not there, before there is anything to close.
        self._toolbox.only(options.settings.queues)
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(open_store(options.store))
            self._secrets = {name: await store.secret(name) for name in (OWNERS, CURSORS)}
            self.is_durable = store.capabilities.durable
            if isinstance(options.clock, StoresClock):
                options.clock.follow(store.capabilities.clock)
            logger.info("the tasks of %r are kept in %s", options.namespace, store)
            engine = Engine(
                audit.audited(store),
                self._toolbox,
                namespace=options.namespace,
                settings=options.settings,
                clock=options.clock,
                works=options.works,
            )
            # Before anybody calls: what is known decides what calls become.
            await engine.durations.refresh()
            self._engine = await stack.enter_async_context(engine)
            # Older versions of what files define are there by now.
            await tell_of_missing_tools(store, options.namespace, self._toolbox, options.clock.now())
            self._stack = stack.pop_all()

    def hurry(self) -> None:
        """While it stops: wait no longer for bodies to end by themselves."""
        self._is_hurried = True
        if self._stopping is not None:
            self._stopping.hurry()

    async def _stop(self) -> None:
        if self._jobs:
            # Not for long: what is left of them ends by itself.
            await asyncio.wait(self._jobs, timeout=GIVING_UP)
        self._stopping, self._engine = self._engine, None
        if self._is_hurried and self._stopping is not None:
            # Told so before it came to this.
            self._stopping.hurry()
        try:
            await self._stack.aclose()
        finally:
            self._stopping = None

    def _changing(self) -> asyncio.Lock:
        """What keeps those who enter and leave apart. A server may run again later, in another event loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._users:
                raise ConfigurationError("the tasks of this server run in another event loop already")
            self._loop, self._lock = loop, asyncio.Lock()
        return self._lock
