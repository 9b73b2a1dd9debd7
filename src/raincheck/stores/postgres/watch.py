"""Hearing of what other handles changed, over `LISTEN`.

A lost connection is made again, and then anything may have changed.
"""

import asyncio
import logging

from psycopg.sql import SQL, Identifier

from raincheck.errors import StoreError
from raincheck.stores.feed import ANYTHING, Feeds
from raincheck.stores.postgres.address import Target
from raincheck.stores.postgres.connect import connected
from raincheck.stores.postgres.news import hear
from raincheck.stores.postgres.reads import Connection

logger = logging.getLogger(__name__)

AFTER_A_LOSS = 0.5
"""Seconds before a lost connection is made again."""

CHECK_EVERY = 15.0
"""Seconds without news after which it is seen whether the connection is still there."""


async def watch(target: Target, channel: str, feeds: Feeds, origin: str) -> None:
    """Tell the feeds what others change, until nobody listens."""
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
                while feeds:
                    await _pass_on(connection, feeds, origin)
        except StoreError as error:
            if not is_known:
                # Whoever waits for a task looks for itself now and then, and whoever reads finds out by reading.
                logger.warning("changes on %s are not heard of, will try again: %s", target.shown, error)
            is_known = True
            await asyncio.sleep(AFTER_A_LOSS)


async def _pass_on(connection: Connection, feeds: Feeds, origin: str) -> None:
    async for notification in connection.notifies(timeout=CHECK_EVERY):
        told_by, hint = hear(notification.payload)
        if told_by == origin:
            # Our own listeners heard of it when it was written.
            continue
        if hint == ANYTHING:
            feeds.publish_anything()
        else:
            feeds.publish(hint)
        if not feeds:
            return
    await connection.execute("SELECT 1")
