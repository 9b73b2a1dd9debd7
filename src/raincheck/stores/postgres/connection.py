"""Connections to PostgreSQL: their setup, a pool that survives a restart of the database, and the database's clock.

Leases on all machines end by that clock, whatever this machine's clock shows.
"""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import psycopg
from psycopg import AsyncConnection
from psycopg.sql import SQL, Identifier, Literal
from psycopg.types.numeric import Int8Dumper
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from raincheck.clock import SystemClock
from raincheck.errors import NotAStore, StoreCorrupt, StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from raincheck.stores.dispatcher import JobQueue
from raincheck.stores.postgres.address import DatabaseTarget
from raincheck.stores.postgres.migrate import fetch_one, migrate, newest_version, schema_version
from raincheck.stores.postgres.rows import QUERIES, Connection
from raincheck.stores.sql import to_datetime

_ADVICE: dict[str, tuple[type[StoreError], str]] = {
    "08": (StoreUnavailable, "the database can't be reached: check that it runs, and its address"),
    "28": (
        StoreUnavailable,
        "the database refused the login: check the user, and the password (PGPASSWORD, ~/.pgpass, or the store's URL)",
    ),
    "3D000": (StoreUnavailable, "the database does not exist: create it, or name another one in the store's URL"),
    "22P05": (
        StoreError,
        "the encoding of the database lacks this character: create one with `createdb -E UTF8 -T template0 NAME`",
    ),
    "25006": (
        StoreReadOnly,
        "the database accepts no writes (it is a standby, or read-only): name the primary in the store's URL",
    ),
    "25P03": (StoreUnavailable, "this process paused in the middle of a transaction, which was aborted: try again"),
    "40": (StoreUnavailable, "concurrent transactions wrote the same rows repeatedly: try again"),
    "42501": (
        StoreReadOnly,
        "permission denied: run `raincheck migrate` as the owner of the database or the schema, or grant permissions",
    ),
    "42P01": (NotAStore, "its tables are missing: run `raincheck migrate`"),
    "3F000": (NotAStore, "its schema is missing: run `raincheck migrate`"),
    "53100": (StoreFull, "no space is left on the database's disk: free some, or prune tasks, then try again"),
    "53300": (
        StoreUnavailable,
        "the database has no connection left: raise its max_connections, or run fewer servers and workers",
    ),
    "53": (StoreUnavailable, "the database is short of memory or other resources: check its log, and try again"),
    "55": (StoreUnavailable, "another transaction holds a lock on a row or a table: try again"),
    "57": (StoreUnavailable, "the database is stopping or starting, or cancelled the statement: try again"),
    "58": (StoreUnavailable, "the database's host reports a system error: check its log, then try again"),
    "XX": (StoreCorrupt, "the database is damaged: check its log, and restore a backup"),
}

_CONNECT_ERRORS = (
    (re.compile("too many clients|connection slots"), "53300"),
    (re.compile('database ".*" does not exist'), "3D000"),
    (re.compile('password|role ".*" does not exist|pg_hba'), "28"),
    (re.compile("database system is"), "57"),
)
"""Texts of refused connections, which have no error code.

The text is in the server's language. Any other text is mapped to the most likely cause: the database can't be
reached.
"""

SERIALIZATION_FAILURES = ("40001", "40P01")
"""Errors of a transaction that gave way to another: nothing of it was stored, and it can simply be retried."""


def translate_error(error: Exception, store: str) -> StoreError:
    """Return the error to raise for a driver error, which becomes its cause."""
    if isinstance(error, PoolTimeout | TooManyRequests):
        return StoreUnavailable(
            store, "no connection became free in time: the database is unavailable, or all connections are busy"
        )
    if isinstance(error, PoolClosed):
        return StoreUnavailable(store, "the store is closed: open it before use")
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    if state is None:
        # The connection itself failed: it could not be opened, or it broke.
        code = next((code for pattern, code in _CONNECT_ERRORS if pattern.search(str(error))), "08")
        kind, advice = _ADVICE[code] if isinstance(error, psycopg.OperationalError) else _UNKNOWN
    else:
        kind, advice = _ADVICE.get(state) or _ADVICE.get(state[:2]) or _UNKNOWN
    return kind(store, f"{advice} ({' '.join(str(error).split())})")


_UNKNOWN = (StoreError, "the database refused the operation; nothing was written")


_SESSION_ENDED = ("57P01", "57P02", "57P03", "57P05", "25P03")
"""The server shuts down, or has ended this session."""


def is_stale_plan(error: Exception) -> bool:
    """Return whether the connection's prepared statements predate a migration. Nothing was executed."""
    return isinstance(error, psycopg.errors.FeatureNotSupported) and "cached plan" in str(error)


def is_connection_lost(error: Exception) -> bool:
    """Return whether the connection is unusable, and another one may work."""
    if isinstance(error, PoolTimeout | PoolClosed | TooManyRequests):
        # There was none to begin with.
        return False
    if isinstance(error, psycopg.Error) and error.sqlstate is not None:
        return error.sqlstate[:2] == "08" or error.sqlstate in _SESSION_ENDED or is_stale_plan(error)
    return isinstance(error, psycopg.OperationalError)


MAX_DRIFT = 0.0005
"""The maximum drift of a machine's clock, in seconds per second. Most are ten times better."""


class ClockReading(NamedTuple):
    """A reading of the database's clock, its local monotonic time, and its uncertainty in seconds."""

    moment: datetime
    elapsed: float
    uncertainty: float


class DatabaseClock(SystemClock):
    """Estimates the database's time between two readings, from the seconds elapsed on this machine."""

    def __init__(self) -> None:
        # Replaced and never mutated: other threads read it too.
        self._reading: ClockReading | None = None

    def now(self) -> datetime:
        reading = self._reading
        if reading is None:
            return super().now()
        return reading.moment + timedelta(seconds=self.monotonic() - reading.elapsed)

    def add_reading(self, moment: datetime, sent_at: float, received_at: float) -> None:
        """Record a reading taken between two local times, if it is more accurate than the current one."""
        uncertainty = max(0.0, received_at - sent_at) / 2
        current, new = self._reading, ClockReading(moment, sent_at + uncertainty, uncertainty)
        if current is None:
            self._reading = new
            return
        # The current reading becomes more uncertain as seconds pass here.
        allowed = current.uncertainty + MAX_DRIFT * (new.elapsed - current.elapsed)
        expected = current.moment + timedelta(seconds=new.elapsed - current.elapsed)
        # A reading that contradicts the current one proves it wrong: this machine slept, or the database's clock was
        # set.
        is_contradiction = abs((moment - expected).total_seconds()) > uncertainty + allowed
        if is_contradiction or uncertainty <= allowed:
            self._reading = new


Pool: TypeAlias = AsyncConnectionPool[Connection]

RECONNECT_TIMEOUT = 5.0
"""Seconds after which a pool gives up on a connection, and starts over when one is requested."""

IDLE_TRANSACTION_TIMEOUT = "10s"


def make_pool(target: DatabaseTarget, kind: type[Connection], size: int, timeout: float) -> Pool:
    """Create a pool, not opened yet."""
    return AsyncConnectionPool(
        target.conninfo,
        connection_class=kind,
        kwargs={"autocommit": True},
        min_size=1,
        max_size=size,
        open=False,
        configure=partial(configure_connection, target=target),
        timeout=timeout,
        reconnect_timeout=RECONNECT_TIMEOUT,
        name=f"connections to {target.display_url}",
    )


async def configure_connection(connection: Connection, target: DatabaseTarget) -> None:
    """Apply the settings that every connection needs."""
    # Bind every number as one type. The driver would choose by its size, and prepare a statement for each choice.
    connection.adapters.register_dumper(int, Int8Dumper)
    await set_search_path(connection, target.schema, target.jobs_schema)
    # A client that stops in the middle of a transaction (a suspended process, for example) blocks other clients no
    # longer than this.
    idle_timeout = SQL("SET idle_in_transaction_session_timeout TO {}").format(Literal(IDLE_TRANSACTION_TIMEOUT))
    # Every query has its index. While a table is small, a sequential scan looks cheaper, and a connection keeps that
    # plan when the table has grown: a burst of new tasks would get slower with each one. JIT compilation pays for none
    # of them either, and would be used for queries whose estimated cost is raised by this.
    plans = SQL("SET enable_seqscan TO off; SET jit TO off")
    await connection.execute(SQL("; ").join([idle_timeout, plans]))


async def set_search_path(connection: AsyncConnection[Any], *schemas: str) -> None:
    """Set the schemas in which unqualified names are resolved."""
    path = SQL(", ").join(map(Identifier, dict.fromkeys(schemas)))
    await connection.execute(SQL("SET search_path TO {}").format(path))


@asynccontextmanager
async def open_connection(
    target: DatabaseTarget, kind: type[Connection] = AsyncConnection
) -> AsyncGenerator[Connection]:
    """Open a connection outside of any pool.

    Raises:
        StoreError: the connection failed, or a statement on it did.
    """
    try:
        connection = await kind.connect(target.conninfo, autocommit=True)
        async with connection:
            await configure_connection(connection, target)
            yield connection
    except psycopg.Error as error:
        raise translate_error(error, target.display_url) from error


async def prepare_database(
    target: DatabaseTarget,
    jobs: JobQueue[Any] | None,
    clock: DatabaseClock,
    kind: type[Connection],
    *,
    must_exist: bool,
) -> None:
    """Ensure that the database exists, belongs to raincheck and has the newest schema: migrate it, or only check.

    Raises:
        StoreError: it is unusable: gone, for example, or of a newer version. It was left unchanged.
    """
    async with open_connection(target, kind) as connection:
        if must_exist:
            newest = await newest_version()
            if await schema_version(connection, target, newest) < newest:
                advice = "run `raincheck migrate`, or start a server or a worker on it"
                raise StoreUnavailable(target.display_url, f"its schema is missing, or of an older version: {advice}")
        else:
            await migrate(connection, target, jobs)
        await sync_clock(connection, clock)


async def sync_clock(connection: Connection, clock: DatabaseClock) -> None:
    """Read the database's clock."""
    sent_at = clock.monotonic()
    (micros,) = await fetch_one(connection, QUERIES["clock"])
    clock.add_reading(to_datetime(micros), sent_at, clock.monotonic())
