"""Hearing of what other handles on the same file changed, by looking at its log of changes.

It looks only while somebody listens: often while there is something to hear, less often when it has been quiet.
"""

import asyncio
import sqlite3
from functools import partial
from typing import NamedTuple

from raincheck.core.records import TaskId
from raincheck.errors import StoreError
from raincheck.stores.change_feed import Feeds
from raincheck.stores.sqlite.reads import QUERIES
from raincheck.stores.sqlite.threads import Lane

BUSY_INTERVAL = 0.025
IDLE_INTERVAL = 0.25
QUIET_LOOKS = 40
"""After so many looks that found nothing, it looks less often."""

LOG_LIMIT = 16_384
"""How many changes the log keeps. A listener that is further behind is told that anything may have changed."""

_TRIM_EVERY = 1_024


class News(NamedTuple):
    """What one look at the log found."""

    newest: int
    task_ids: frozenset[TaskId]
    has_gap: bool


def log_changes(connection: sqlite3.Connection, task_ids: tuple[TaskId, ...], origin: str) -> None:
    """Note in the log that tasks changed, and now and then forget old notes."""
    for task_id in task_ids:
        seq = connection.execute(QUERIES["log_change"], (task_id, origin)).lastrowid
        if seq is not None and seq % _TRIM_EVERY == 0:
            connection.execute(QUERIES["trim_changes"], (seq - LOG_LIMIT,))


def look(connection: sqlite3.Connection, seen: int, origin: str) -> News:
    """What others than `origin` changed since the place `seen` in the log."""
    oldest, newest = connection.execute(QUERIES["changes_bounds"]).fetchone()
    if newest <= seen:
        return News(seen, frozenset(), has_gap=False)
    rows = connection.execute(QUERIES["changes_since"], {"seen": seen, "origin": origin}).fetchall()
    newest = max([newest, *(seq for seq, _ in rows)])
    return News(newest, frozenset(TaskId(task_id) for _, task_id in rows), has_gap=oldest > seen + 1)


async def watch(lane: Lane, feeds: Feeds, origin: str) -> None:
    """Tell the feeds what others change, until nobody listens."""
    seen: int | None = None
    quiet = 0
    while feeds:
        try:
            news = await lane.submit(partial(look, seen=seen or 0, origin=origin))
        except StoreError:
            # The file can't be read just now. Whoever listens finds out by reading; here it is only tried again.
            seen, quiet = None, QUIET_LOOKS
        else:
            quiet = quiet + 1 if news.newest == seen else 0
            # At the first look, nobody can say which of the changes came after the first listener did.
            if seen is None or news.has_gap:
                feeds.publish_anything()
            else:
                feeds.publish(news.task_ids)
            seen = news.newest
        await asyncio.sleep(BUSY_INTERVAL if quiet < QUIET_LOOKS else IDLE_INTERVAL)
