"""Run the store and the engine of a server: opened when it starts, and closed when it stops.

`ServerOptions` holds the configuration: how tasks are stored, run and served. `ServerRuntime` owns the store and the
engine. At startup it warns about stored tasks that this server can't run.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from os import PathLike
from typing import Any, get_args

from raincheck._async import run_to_completion
from raincheck.clock import Clock, StoreClock
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Scope
from raincheck.core.values import check_name
from raincheck.engine import Engine, Settings, Toolbox
from raincheck.engine.settings import check_seconds, check_type
from raincheck.errors import ConfigurationError, InvalidValue
from raincheck.server.audit import AuditLog
from raincheck.server.caller import Anonymous, OwnerFunction
from raincheck.stores.base import Store
from raincheck.stores.factory import check_store_name, open_store
from raincheck.stores.requests import PAGE_LIMIT, TaskQuery
from raincheck.wire.fallback_text import FallbackTools

logger = logging.getLogger(__name__)


async def warn_about_missing_tools(store: Store, namespace: str, toolbox: Toolbox, now: datetime) -> None:
    """Warn about tasks that wait for a tool that this server lacks: its name or its version may have changed."""
    query = TaskQuery(Scope.for_namespace(namespace), phases=frozenset({Phase.QUEUED, Phase.PARKED}))
    page = await store.list_tasks(query, now=now, limit=PAGE_LIMIT)
    missing = Counter(task.tool for task in page.tasks if toolbox.find(task.tool) is None)
    for tool, count in missing.items():
        logger.warning(
            "at least %d waiting tasks need tool %r in version %r, which this server does not have: "
            "register a tool of that name and version, or list that version in `continues` of a newer one",
            count,
            tool.name,
            tool.version,
        )


FALLBACK_WAIT = 45.0
"""Seconds. Hosts time out after about a minute."""

MAX_FALLBACK_WAIT = 3_600.0
"""Seconds, for hosts that are configured to wait longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Options of a server, as its author configured them. `Tasks` documents each of them.

    Raises:
        ConfigurationError: an option is invalid.
    """

    store: str | PathLike[str] | None
    namespace: str
    settings: Settings
    clock: Clock
    works: bool
    owner: OwnerFunction | None
    anonymous: Anonymous
    fallback_wait: float | None
    fallback_tools: FallbackTools

    def __post_init__(self) -> None:
        check_store_name(self.store)
        check_type("works", self.works, bool)
        check_type("settings", self.settings, Settings)
        check_type("fallback_tools", self.fallback_tools, FallbackTools)
        check_type("namespace", self.namespace, str)
        if self.owner is not None and not callable(self.owner):
            raise ConfigurationError(f"owner is a function that returns the owner of a request, not {self.owner!r}")
        if self.anonymous not in get_args(Anonymous):
            raise ConfigurationError(f'anonymous is "id" or "session", not {self.anonymous!r}')
        if self.fallback_wait is not None:
            check_seconds("fallback_wait", self.fallback_wait, minimum=0.1, maximum=MAX_FALLBACK_WAIT)
        try:
            check_name(self.namespace, what="a namespace")
        except InvalidValue as error:
            raise ConfigurationError(str(error)) from error


UNSEEN_TASK_TIMEOUT = timedelta(days=1)
"""Timeout of a task that its caller does not see. A caller that disconnects after it was asked for input can't
even cancel it."""

CLEANUP_TIMEOUT = 1.0
"""Seconds, when the server stops, for the work of disconnected callers: calls to cancel, answers to store."""


class ServerRuntime:
    """Runs the engine of a server, from the first connection that needs it to the last.

    Some transports enter a server's lifespan once, some once per connection. Either way there is one engine.
    """

    def __init__(self, options: ServerOptions, toolbox: Toolbox) -> None:
        self.options = options
        self.clock = options.clock
        self._toolbox = toolbox
        self._engine: Engine | None = None
        self._stopping: Engine | None = None
        self._is_grace_skipped = False
        self.header_key = b""
        """The secret for hashes of headers, while the server runs."""
        self.cursor_key = b""
        """The secret that signs cursors. Every process on the store accepts the cursors of the others."""
        self._users = 0
        self.is_durable = False
        """Whether the store that is open now outlives the server."""
        self._background: set[asyncio.Future[Any]] = set()
        self._stack = AsyncExitStack()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()

    def configure(self, options: Mapping[str, object], settings: Mapping[str, object]) -> None:
        """Override the author's options and settings. None leaves a value unchanged.

        Raises:
            ConfigurationError: a value is invalid, or the server is already running.
        """
        if self._users:
            raise ConfigurationError("the server is already running: call configure() before it starts")
        new_settings: Any = {name: value for name, value in settings.items() if value is not None}
        new_options: Any = {name: value for name, value in options.items() if value is not None}
        self.options = replace(self.options, **new_options, settings=replace(self.options.settings, **new_settings))

    @property
    def engine(self) -> Engine:
        """The engine.

        Raises:
            ConfigurationError: the server is not running.
        """
        if self._engine is None:
            raise ConfigurationError(
                "the tasks of this server are not running: start the server, because its lifespan starts them"
            )
        return self._engine

    def finish_before_stop(self, future: "asyncio.Future[Any]") -> None:
        """Let work finish before the engine stops, even if the caller that needed it has disconnected."""
        self._background.add(future)
        future.add_done_callback(self._discard_background)

    def _discard_background(self, future: "asyncio.Future[Any]") -> None:
        self._background.discard(future)
        error = None if future.cancelled() else future.exception()
        if error is not None:
            # A caller that waits for it gets the error too, but there may be no such caller.
            logger.debug("work for a disconnected caller failed: %r", error)

    @asynccontextmanager
    async def keep_running(self, prepare: Callable[[], object]) -> AsyncGenerator[None]:
        """Keep the engine running while any such context is entered. `prepare` is called before anything starts."""
        # Neither may stop half-way: a store that stays open keeps its file and its leases.
        try:
            await run_to_completion(self._acquire(prepare))
        except asyncio.CancelledError:
            # The engine has started, and is not needed any more.
            await run_to_completion(self._release())
            raise
        try:
            yield
        finally:
            await run_to_completion(self._release())

    async def _acquire(self, prepare: Callable[[], object]) -> None:
        async with self._state_lock():
            if not self._users:
                prepare()
                await self._start()
            self._users += 1

    async def _release(self) -> None:
        async with self._state_lock():
            self._users -= 1
            if not self._users:
                await self._stop()

    async def _start(self) -> None:
        options, self._is_grace_skipped = self.options, False
        # This rejects missing tools before there is anything to close.
        self._toolbox.subset(options.settings.queues)
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(open_store(options.store))
            self.header_key = await store.get_or_create_secret("owners")
            self.cursor_key = await store.get_or_create_secret("cursors")
            self.is_durable = store.capabilities.durable
            clock: Clock | None = options.clock
            if isinstance(clock, StoreClock):
                clock.use(store.capabilities.clock)
                # An engine uses its store's clock by itself.
                clock = None
            logger.info("the tasks of %r are stored in %s", options.namespace, store)
            engine = Engine(
                store,
                self._toolbox,
                namespace=options.namespace,
                settings=options.settings,
                clock=clock,
                works=options.works,
                observer=AuditLog(store),
            )
            # Before the first call: the measured durations decide whether calls become tasks.
            await engine.durations.refresh()
            self._engine = await stack.enter_async_context(engine)
            # By now, older versions of tools that files define are registered.
            await warn_about_missing_tools(store, options.namespace, self._toolbox, options.clock.now())
            self._stack = stack.pop_all()

    def skip_grace(self) -> None:
        """Stop waiting for bodies to end by themselves, while the server stops."""
        self._is_grace_skipped = True
        if self._stopping is not None:
            self._stopping.skip_grace()

    async def _stop(self) -> None:
        if self._background:
            # Only briefly: the rest ends by itself.
            await asyncio.wait(self._background, timeout=CLEANUP_TIMEOUT)
        self._stopping, self._engine = self._engine, None
        if self._is_grace_skipped and self._stopping is not None:
            # `skip_grace` was called before the stop got here.
            self._stopping.skip_grace()
        try:
            await self._stack.aclose()
        finally:
            self._stopping = None

    def _state_lock(self) -> asyncio.Lock:
        """Return the lock that serializes start and stop. A server may run again later, in another event loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._users:
                raise ConfigurationError("the tasks of this server already run in another event loop: stop them first")
            self._loop, self._lock = loop, asyncio.Lock()
        return self._lock
