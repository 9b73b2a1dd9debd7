"""Detect changes by other handles on the same file, by polling its change log.

It polls only while there are listeners: often while there are changes, less often when it has been quiet.
"""

import asyncio
import sqlite3
from functools import partial
from typing import NamedTuple

from raincheck.core.records import TaskId
from raincheck.errors import StoreError
from raincheck.stores.change_feed import ChangeBroadcaster
from raincheck.stores.sqlite.reads import QUERIES
from raincheck.stores.sqlite.threads import ConnectionThread

BUSY_INTERVAL = 0.025
IDLE_INTERVAL = 0.25
IDLE_AFTER_POLLS = 40
"""After this many polls that found nothing, it polls less often."""

LOG_LIMIT = 16_384
"""The number of changes the log keeps. A listener further behind is notified that any task may have changed."""

_TRIM_EVERY = 1_024


class ChangeBatch(NamedTuple):
    """The changes found by one poll of the log."""

    newest: int
    task_ids: frozenset[TaskId]
    has_gap: bool


def log_changes(connection: sqlite3.Connection, task_ids: tuple[TaskId, ...], origin: str) -> None:
    """Record in the log that tasks changed, and occasionally trim old entries."""
    for task_id in task_ids:
        seq = connection.execute(QUERIES["log_change"], (task_id, origin)).lastrowid
        if seq is not None and seq % _TRIM_EVERY == 0:
            connection.execute(QUERIES["trim_changes"], (seq - LOG_LIMIT,))


def read_changes(connection: sqlite3.Connection, seen: int, origin: str) -> ChangeBatch:
    """Read the changes by other handles than `origin` since the position `seen` in the log."""
    oldest, newest = connection.execute(QUERIES["changes_bounds"]).fetchone()
    if newest <= seen:
        return ChangeBatch(seen, frozenset(), has_gap=False)
    rows = connection.execute(QUERIES["changes_since"], {"seen": seen, "origin": origin}).fetchall()
    newest = max([newest, *(seq for seq, _ in rows)])
    return ChangeBatch(newest, frozenset(TaskId(task_id) for _, task_id in rows), has_gap=oldest > seen + 1)


async def watch_changes(thread: ConnectionThread, feeds: ChangeBroadcaster, origin: str) -> None:
    """Publish changes by other handles to the feeds, until there are no listeners."""
    seen: int | None = None
    quiet_polls = 0
    while feeds:
        try:
            batch = await thread.submit(partial(read_changes, seen=seen or 0, origin=origin))
        except StoreError:
            # The file can't be read just now. A listener finds out by its own reads; here the poll is only retried.
            seen, quiet_polls = None, IDLE_AFTER_POLLS
        else:
            quiet_polls = quiet_polls + 1 if batch.newest == seen else 0
            # At the first poll, it is unknown which of the changes came after the first listener.
            if seen is None or batch.has_gap:
                feeds.publish_any_task()
            else:
                feeds.publish(batch.task_ids)
            seen = batch.newest
        await asyncio.sleep(BUSY_INTERVAL if quiet_polls < IDLE_AFTER_POLLS else IDLE_INTERVAL)
