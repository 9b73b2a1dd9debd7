"""A toy database: a dictionary that stands for a real one, which several stores share and which outlives them."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock

from raincheck.stores.change_feed import ChangeBroadcaster
from raincheck.stores.documents import Documents


class ToyDatabase:
    """Stands for a real database: it has transactions, and tells those who listen what they changed."""

    def __init__(self) -> None:
        self.documents = Documents()
        self.secrets: dict[str, bytes] = {}
        self.listening: dict[ChangeBroadcaster, asyncio.AbstractEventLoop] = {}
        self.one_at_a_time = Lock()

    @contextmanager
    def transaction(self) -> Generator[Documents]:
        """A copy to work on. It takes effect at one moment, and only if nothing is raised."""
        with self.one_at_a_time:
            before, after = self.documents, Documents(self.documents)
            yield after
            self.documents = after
            old, new = ({(key, one.task.version) for key, one in state.items()} for state in (before, after))
            changed = {task_id for task_id, _ in old ^ new}
            for feeds, loop in self.listening.items():
                is_here = loop is asyncio.get_running_loop()  # a twin has a loop of its own, in another thread
                feeds.publish(changed) if is_here else loop.call_soon_threadsafe(feeds.publish, changed)
