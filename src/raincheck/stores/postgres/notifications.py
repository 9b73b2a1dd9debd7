"""Notifications of changes between handles, over `LISTEN` and `NOTIFY`.

A message carries the handle that made the changes and the ids of the tasks. A lost connection is reopened, and then any
task may have changed.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator

import psycopg
from psycopg import Notify
from psycopg.sql import SQL, Identifier

from raincheck.core.records import TaskId
from raincheck.errors import StoreError
from raincheck.stores.change_feed import ANY_TASK, ChangeBroadcaster, ChangeHint
from raincheck.stores.postgres.address import DatabaseTarget
from raincheck.stores.postgres.connection import open_connection
from raincheck.stores.postgres.rows import Connection

MAX_MESSAGE_BYTES = 7_900
"""Maximum bytes of one message. PostgreSQL accepts fewer than 8,000."""

SEPARATOR = "\n"
"""Ids that raincheck generates never contain it. Ids chosen by a program might, and are then not named."""


def encode_changes(origin: str, task_ids: Iterable[TaskId]) -> Iterator[str]:
    """Encode the messages that announce changes of these tasks."""
    message = origin
    size = len(origin)
    for task_id in task_ids:
        length = len(task_id.encode()) + 1
        if SEPARATOR in task_id or len(origin) + length > MAX_MESSAGE_BYTES:
            # Without names: any task may have changed.
            yield origin
            continue
        if size + length > MAX_MESSAGE_BYTES:
            yield message
            message, size = origin, len(origin)
        message, size = f"{message}{SEPARATOR}{task_id}", size + length
    if size > len(origin):
        yield message


def decode_changes(message: str) -> tuple[str, ChangeHint]:
    """Decode a message into its origin and its hint."""
    origin, *ids = message.split(SEPARATOR)
    return origin, frozenset(map(TaskId, ids)) or ANY_TASK


logger = logging.getLogger(__name__)

RECONNECT_DELAY = 0.5
"""Seconds before a lost connection is reopened."""

CHECK_INTERVAL = 15.0
"""Seconds between checks that the connection is still alive."""


async def watch_changes(target: DatabaseTarget, channel: str, feeds: ChangeBroadcaster, origin: str) -> None:
    """Publish changes by other handles to the feeds, until there are no listeners."""

    def publish(message: str) -> None:
        sender, hint = decode_changes(message)
        if sender == origin:
            # Our own listeners were notified when it was written.
            return
        if hint == ANY_TASK:
            feeds.publish_any_task()
        else:
            feeds.publish(hint)

    is_disconnected = False
    while feeds:
        try:
            async with open_connection(target) as connection:
                await connection.execute(SQL("LISTEN {}").format(Identifier(channel)))
                # It is unknown what changed before this.
                feeds.publish_any_task()
                if is_disconnected:
                    logger.info("reconnected: notifications from %s arrive again", target.display_url)
                is_disconnected = False
                listener = NotificationListener(connection, publish)
                while feeds:
                    await listener.listen(CHECK_INTERVAL)
        except StoreError as error:
            if not is_disconnected:
                # A caller that waits for a task also polls now and then, and a reader finds out by its own reads.
                logger.warning(
                    "lost the connection for notifications from %s, will retry: %s", target.display_url, error
                )
            is_disconnected = True
            await asyncio.sleep(RECONNECT_DELAY)


class NotificationListener:
    """Passes on a connection's notifications whenever there is something to read.

    The driver's own `notifies()` sets up a wait for each message, which costs more than most writes: and a handle is
    also notified of all its own writes.
    """

    def __init__(self, connection: Connection, callback: Callable[[str], None]) -> None:
        self._connection = connection
        self._callback = callback
        self._encoding = connection.info.encoding
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # The listener may leave in the same iteration in which the connection is lost, and then its error is not
        # retrieved.
        self._lost.add_done_callback(lambda lost: lost.exception())
        # For notifications that arrive while something else is read from the connection.
        connection.add_notify_handler(self._on_notify)

    async def listen(self, seconds: float) -> None:
        """Pass on notifications for `seconds`, and then check that the connection is still alive.

        Raises:
            psycopg.Error: it is lost.
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
        while (notification := libpq.notifies()) is not None:
            self._callback(notification.extra.decode(self._encoding))

    def _on_notify(self, notification: Notify) -> None:
        self._callback(notification.payload)
