"""Connections to PostgreSQL: their setup, a pool that survives a restart of the database, and the database's clock.

Leases on all machines end by that clock, whatever this machine's clock shows.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeAlias

import psycopg
from psycopg import AsyncConnection
from psycopg.sql import SQL, Identifier, Literal
from psycopg.types.numeric import Int8Dumper
from psycopg_pool import AsyncConnectionPool

from raincheck.clock import SystemClock
from raincheck.errors import StoreUnavailable
from raincheck.stores.dispatcher import JobQueue
from raincheck.stores.postgres import reads
from raincheck.stores.postgres.address import DatabaseTarget
from raincheck.stores.postgres.errors import translate_error
from raincheck.stores.postgres.migrate import migrate, newest_version, schema_version
from raincheck.stores.postgres.reads import Connection

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

    async def configure(connection: Connection) -> None:
        await configure_connection(connection, target)

    return AsyncConnectionPool(
        target.conninfo,
        connection_class=kind,
        kwargs={"autocommit": True},
        min_size=1,
        max_size=size,
        open=False,
        configure=configure,
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
    target: DatabaseTarget, jobs: JobQueue[Any] | None, clock: DatabaseClock, kind: type[Connection]
) -> None:
    """Ensure that the database exists, belongs to raincheck and has the newest schema.

    Raises:
        StoreError: it is unusable. It was left unchanged.
    """
    async with open_connection(target, kind) as connection:
        await migrate(connection, target, jobs)
        await sync_clock(connection, clock)


async def check_existing_database(target: DatabaseTarget, clock: DatabaseClock, kind: type[Connection]) -> None:
    """Check that the database exists and has the newest schema, without changing anything.

    Raises:
        StoreError: it is gone, or has another schema version.
    """
    async with open_connection(target, kind) as connection:
        newest = await newest_version()
        if await schema_version(connection, target, newest) < newest:
            advice = "run `raincheck migrate`, or start a server or a worker on it"
            raise StoreUnavailable(target.display_url, f"its schema is missing, or of an older version: {advice}")
        await sync_clock(connection, clock)


async def sync_clock(connection: Connection, clock: DatabaseClock) -> None:
    """Read the database's clock."""
    sent_at = clock.monotonic()
    moment = await reads.database_time(connection)
    clock.add_reading(moment, sent_at, clock.monotonic())
