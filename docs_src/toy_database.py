"""A toy database: a dictionary that stands in for a real database. Several stores share it, and it outlives them."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock

from raincheck.stores import ChangeBroadcaster, Documents


class ToyDatabase:
    """Stands in for a real database: it has transactions, and notifies listeners of the tasks that they changed."""

    def __init__(self) -> None:
        self.documents = Documents()
        self.secrets: dict[str, bytes] = {}
        self.listeners: dict[ChangeBroadcaster, asyncio.AbstractEventLoop] = {}
        self.lock = Lock()

    @contextmanager
    def transaction(self) -> Generator[Documents]:
        """Yield a copy to work on. It takes effect atomically, and only if no exception is raised."""
        with self.lock:
            before, after = self.documents, Documents(self.documents)
            yield after
            self.documents = after
            old, new = ({(key, document.task.version) for key, document in state.items()} for state in (before, after))
            changed = {task_id for task_id, _ in old ^ new}
            for feeds, loop in self.listeners.items():
                is_here = loop is asyncio.get_running_loop()  # another handle has its own loop, in another thread
                feeds.publish(changed) if is_here else loop.call_soon_threadsafe(feeds.publish, changed)
