"""Connections: how they are made and set up, and a pool of them that gets over a database's restart.

The database's clock, as it is known here: whatever this machine's says, leases on all machines end by one.
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
from raincheck.stores.dispatcher import Jobs
from raincheck.stores.postgres import reads
from raincheck.stores.postgres.address import Target
from raincheck.stores.postgres.errors import translate
from raincheck.stores.postgres.migrate import migrate, newest_version, schema_version
from raincheck.stores.postgres.reads import Connection

DRIFT = 0.0005
"""Seconds by which a machine's seconds may be off each second. Most are ten times better."""


class Reading(NamedTuple):
    """What the database's clock said, when, and by how many seconds that may be off."""

    moment: datetime
    elapsed: float
    doubt: float


class DatabaseClock(SystemClock):
    """Tells the database's time between two looks at it, by the seconds that have passed here."""

    def __init__(self) -> None:
        # Replaced and never changed: other threads ask it too.
        self._reading: Reading | None = None

    def now(self) -> datetime:
        reading = self._reading
        if reading is None:
            return super().now()
        return reading.moment + timedelta(seconds=self.elapsed() - reading.elapsed)

    def read(self, moment: datetime, asked: float, answered: float) -> None:
        """Take note of what the clock said at some time between two moments here, if that tells more than is known."""
        doubt = max(0.0, answered - asked) / 2
        known, new = self._reading, Reading(moment, asked + doubt, doubt)
        if known is None:
            self._reading = new
            return
        # What is known becomes doubtful, as seconds pass here.
        allowed = known.doubt + DRIFT * (new.elapsed - known.elapsed)
        expected = known.moment + timedelta(seconds=new.elapsed - known.elapsed)
        # A reading that can't be true together with what is known proves it wrong: this machine slept, or the
        # database's clock was set.
        is_proof = abs((moment - expected).total_seconds()) > doubt + allowed
        if is_proof or doubt <= allowed:
            self._reading = new


Pool: TypeAlias = AsyncConnectionPool[Connection]

RECONNECT = 5.0
"""Seconds after which a pool gives up on a connection, and begins anew when somebody wants one."""

LONGEST_PAUSE = "10s"


def make_pool(target: Target, kind: type[Connection], size: int, timeout: float) -> Pool:
    """A pool, not opened yet."""

    async def configure(connection: Connection) -> None:
        await set_up(connection, target)

    return AsyncConnectionPool(
        target.conninfo,
        connection_class=kind,
        kwargs={"autocommit": True},
        min_size=1,
        max_size=size,
        open=False,
        configure=configure,
        timeout=timeout,
        reconnect_timeout=RECONNECT,
        name=f"connections to {target.shown}",
    )


async def set_up(connection: Connection, target: Target) -> None:
    """What every connection needs."""
    # Every number as one type. The driver would choose by its size, and prepare a statement for each choice.
    connection.adapters.register_dumper(int, Int8Dumper)
    await look_in(connection, target.schema, target.jobs_schema)
    # Who stops in the middle of a transaction (a process that was suspended, say) holds up others no longer than this.
    pause = SQL("SET idle_in_transaction_session_timeout TO {}").format(Literal(LONGEST_PAUSE))
    # Every query has its index. While a table is small, to read all of it looks cheaper, and a connection keeps to that
    # plan when it has grown: a burst of new tasks would get slower with each of them. None is worth compiling, either,
    # which those would be whose cost is raised by this.
    plans = SQL("SET enable_seqscan TO off; SET jit TO off")
    await connection.execute(SQL("; ").join([pause, plans]))


async def look_in(connection: AsyncConnection[Any], *schemas: str) -> None:
    """Find names without a schema in these."""
    path = SQL(", ").join(map(Identifier, dict.fromkeys(schemas)))
    await connection.execute(SQL("SET search_path TO {}").format(path))


@asynccontextmanager
async def connected(target: Target, kind: type[Connection] = AsyncConnection) -> AsyncGenerator[Connection]:
    """A connection outside of any pool.

    Raises:
        StoreError: what is wrong with the database, or with what was done there.
    """
    try:
        connection = await kind.connect(target.conninfo, autocommit=True)
        async with connection:
            await set_up(connection, target)
            yield connection
    except psycopg.Error as error:
        raise translate(error, target.shown) from error


async def prepare_database(
    target: Target, jobs: Jobs[Any] | None, clock: DatabaseClock, kind: type[Connection]
) -> None:
    """Make sure that the database is there, is ours and has the newest schema.

    Raises:
        StoreError: what is wrong with it. It was left as it was.
    """
    async with connected(target, kind) as connection:
        await migrate(connection, target, jobs)
        await read_clock(connection, clock)


async def find_database(target: Target, clock: DatabaseClock, kind: type[Connection]) -> None:
    """Make sure that the database is there and has the newest schema, and change nothing.

    Raises:
        StoreError: it is gone, or it is not what it was.
    """
    async with connected(target, kind) as connection:
        known = await newest_version()
        if await schema_version(connection, target, known) < known:
            what_to_do = "run `raincheck migrate`, or start a server or a worker on it"
            raise StoreUnavailable(target.shown, f"its schema is missing, or of an older version: {what_to_do}")
        await read_clock(connection, clock)


async def read_clock(connection: Connection, clock: DatabaseClock) -> None:
    """Look at the database's clock."""
    asked = clock.elapsed()
    moment = await reads.clock(connection)
    clock.read(moment, asked, clock.elapsed())
