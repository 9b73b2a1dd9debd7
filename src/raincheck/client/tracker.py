"""The tasks that a client has in hand, and what servers tell of them by themselves."""

import asyncio
import secrets
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

from mcp.client.session import IncomingMessage
from mcp_types import ProgressNotification

from raincheck.client.inputs import Asked, Consulting
from raincheck.client.saved_calls import Slip
from raincheck.client.updates import Progress, Update
from raincheck.clock import Clock
from raincheck.wire.fields import as_object
from raincheck.wire.results import RELATED_TASK


class Held:
    """A task in hand: one for all handles of it, so that nobody is asked twice because two wait."""

    def __init__(self, slip: Slip, clock: Clock) -> None:
        self.slip = slip
        self.attending = asyncio.Lock()
        """Taken by the one who waits while the server asks by itself."""
        self.asked = Asked()
        self.consulting = Consulting(clock)
        self._progress: tuple[Progress | None, str | None] = None, None
        self._waiting: set[asyncio.Event] = set()

    @property
    def task_id(self) -> str:
        return self.slip.task_id

    @contextmanager
    def waiting(self) -> Generator[asyncio.Event]:
        """An event that is set whenever something is told of the task."""
        event = asyncio.Event()
        self._waiting.add(event)
        self.asked.want()
        try:
            yield event
        finally:
            self._waiting.discard(event)
            if not self._waiting:
                self.asked.give_up()
                self.consulting.withdraw(self.consulting.asked)

    def changed(self) -> None:
        """Something has happened to the task."""
        for event in self._waiting:
            event.set()

    def progressed(self, progress: Progress, message: str | None) -> None:
        self._progress = progress, message
        self.changed()

    def with_progress(self, update: Update) -> Update:
        """The update, with how far its task was told to be."""
        progress, message = self._progress
        # What it said last of its work says nothing of how that ended.
        message = update.message or (None if update.is_ended else message)
        return replace(update, progress=update.progress or progress, message=message)


class Heard:
    """All tasks in hand, and no others: what is told of those is not for us."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: WeakValueDictionary[str, Held] = WeakValueDictionary()
        self._by_token: WeakValueDictionary[str, Held] = WeakValueDictionary()

    def hold(self, slip: Slip, token: str | None = None) -> Held:
        """Take a task in hand. Progress of it may be told under the token of its call."""
        held = self._held.get(slip.task_id) or Held(slip, self._clock)
        held.slip = slip
        self._held[slip.task_id] = held
        if token is not None:
            self._by_token[token] = held
        return held

    def changed(self, task_id: str) -> None:
        """Something has happened to a task."""
        held = self._held.get(task_id)
        if held is not None:
            held.changed()

    def new_token(self) -> str:
        """What progress of a call is told under."""
        return f"raincheck-{secrets.token_hex(8)}"

    def take(self, message: IncomingMessage) -> None:
        """A message from the server, whatever it is."""
        if isinstance(message, ProgressNotification):
            params = message.params
            held = self._by_token.get(str(params.progress_token)) or self.related(params.meta)
            if held is not None:
                held.progressed(Progress(params.progress, params.total), params.message)

    def related(self, meta: Mapping[str, Any] | None) -> Held | None:
        """The task that a message is about, by its `_meta`."""
        task_id = as_object((meta or {}).get(RELATED_TASK)).get("taskId")
        return self._held.get(task_id) if isinstance(task_id, str) else None
