"""Hearing of what other handles changed, over `LISTEN`.

A lost connection is made again, and then anything may have changed.

What handles tell each other over `LISTEN` and `NOTIFY`: who changed something, and the ids of the tasks.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator

import psycopg
from psycopg import Notify
from psycopg.sql import SQL, Identifier

from raincheck.core.records import TaskId
from raincheck.errors import StoreError
from raincheck.stores.change_feed import ANYTHING, Feeds, Hint
from raincheck.stores.postgres.address import Target
from raincheck.stores.postgres.connection import connected
from raincheck.stores.postgres.reads import Connection

LIMIT = 7_900
"""Bytes of one message. PostgreSQL takes fewer than 8,000."""

SEPARATOR = "\n"
"""Ids that raincheck makes have none. Those of a program of its own might, and are then not named."""


def tell(origin: str, task_ids: Iterable[TaskId]) -> Iterator[str]:
    """The messages that tell of these tasks."""
    message = origin
    size = len(origin)
    for task_id in task_ids:
        length = len(task_id.encode()) + 1
        if SEPARATOR in task_id or len(origin) + length > LIMIT:
            # Without names: anything may have changed.
            yield origin
            continue
        if size + length > LIMIT:
            yield message
            message, size = origin, len(origin)
        message, size = f"{message}{SEPARATOR}{task_id}", size + length
    if size > len(origin):
        yield message


def hear(message: str) -> tuple[str, Hint]:
    """Who told, and of what."""
    origin, *ids = message.split(SEPARATOR)
    return origin, frozenset(map(TaskId, ids)) or ANYTHING


logger = logging.getLogger(__name__)

AFTER_A_LOSS = 0.5
"""Seconds before a lost connection is made again."""

CHECK_EVERY = 15.0
"""Seconds after which it is seen whether the connection is still there."""


async def watch(target: Target, channel: str, feeds: Feeds, origin: str) -> None:
    """Tell the feeds what others change, until nobody listens."""

    def pass_on(message: str) -> None:
        told_by, hint = hear(message)
        if told_by == origin:
            # Our own listeners heard of it when it was written.
            return
        if hint == ANYTHING:
            feeds.publish_anything()
        else:
            feeds.publish(hint)

    is_known = False
    while feeds:
        try:
            async with connected(target) as connection:
                await connection.execute(SQL("LISTEN {}").format(Identifier(channel)))
                # Nobody can say what changed before this.
                feeds.publish_anything()
                if is_known:
                    logger.info("changes on %s are heard of again", target.shown)
                is_known = False
                ear = Ear(connection, pass_on)
                while feeds:
                    await ear.listen(CHECK_EVERY)
        except StoreError as error:
            if not is_known:
                # Whoever waits for a task looks for itself now and then, and whoever reads finds out by reading.
                logger.warning("changes on %s are not heard of, will try again: %s", target.shown, error)
            is_known = True
            await asyncio.sleep(AFTER_A_LOSS)


class Ear:
    """Hears what a connection is told, whenever there is something to read.

    The driver's own `notifies()` sets up a wait for each message, which costs more than most writes: and a handle is
    told of all that it writes itself.
    """

    def __init__(self, connection: Connection, pass_on: Callable[[str], None]) -> None:
        self._connection = connection
        self._pass_on = pass_on
        self._encoding = connection.info.encoding
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Who listens may leave in the turn in which the connection is lost, and then nobody asks.
        self._lost.add_done_callback(lambda lost: lost.exception())
        # What comes while something else is read from the connection.
        connection.add_notify_handler(self._hear)

    async def listen(self, seconds: float) -> None:
        """Pass on what is told for so long, and see then whether the connection is still there.

        Raises:
            psycopg.Error: it is not.
        """
        loop, socket = asyncio.get_running_loop(), self._connection.fileno()
        loop.add_reader(socket, self._read)
        try:
            await asyncio.wait([self._lost], timeout=seconds)
        finally:
            loop.remove_reader(socket)
        if self._lost.done():
            self._lost.result()
        await self._connection.execute("SELECT 1")

    def _read(self) -> None:
        libpq = self._connection.pgconn
        try:
            libpq.consume_input()
        except psycopg.Error as error:
            if not self._lost.done():
                self._lost.set_exception(error)
        while (told := libpq.notifies()) is not None:
            self._pass_on(told.extra.decode(self._encoding))

    def _hear(self, told: Notify) -> None:
        self._pass_on(told.payload)
