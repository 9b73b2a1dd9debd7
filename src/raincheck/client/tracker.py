"""The tasks that a client follows, and the dispatch of server messages to them."""

import asyncio
import secrets
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from weakref import WeakValueDictionary

from mcp.client.session import IncomingMessage
from mcp_types import ProgressNotification

from raincheck.client.inputs import PendingInputs2025, PendingInputs2026
from raincheck.client.saved_calls import TaskRef
from raincheck.client.updates import TaskProgress, Update
from raincheck.clock import Clock
from raincheck.wire.fields import as_object
from raincheck.wire.results import RELATED_TASK


class TrackedTask:
    """A task that the client follows. All handles share one object, so that a question is asked once."""

    def __init__(self, task_ref: TaskRef, clock: Clock) -> None:
        self.task_ref = task_ref
        self.callback_lock = asyncio.Lock()
        """Held by the waiter for which the server sends its questions."""
        self.inputs_2025 = PendingInputs2025()
        self.inputs_2026 = PendingInputs2026(clock)
        self._progress: tuple[TaskProgress | None, str | None] = None, None
        self._watchers: set[asyncio.Event] = set()

    @property
    def task_id(self) -> str:
        return self.task_ref.task_id

    @contextmanager
    def watch(self) -> Generator[asyncio.Event]:
        """Yield an event that is set whenever the task may have changed."""
        event = asyncio.Event()
        self._watchers.add(event)
        self.inputs_2025.resume()
        try:
            yield event
        finally:
            self._watchers.discard(event)
            if not self._watchers:
                self.inputs_2025.abandon()
                self.inputs_2026.cancel(self.inputs_2026.in_progress)

    def notify(self) -> None:
        """Set the watchers' events."""
        for event in self._watchers:
            event.set()

    def record_progress(self, progress: TaskProgress, message: str | None) -> None:
        self._progress = progress, message
        self.notify()

    def with_progress(self, update: Update) -> Update:
        """Return the update with the last progress notification of its task."""
        progress, message = self._progress
        # The last progress message does not describe the outcome.
        message = update.message or (None if update.is_ended else message)
        return replace(update, progress=update.progress or progress, message=message)


class TaskTracker:
    """All tasks that the client follows. Messages about other tasks are ignored."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tasks: WeakValueDictionary[str, TrackedTask] = WeakValueDictionary()
        self._by_token: WeakValueDictionary[str, TrackedTask] = WeakValueDictionary()

    def track(self, task_ref: TaskRef, progress_token: str | None = None) -> TrackedTask:
        """Follow a task. Its progress may arrive under the progress token of its call."""
        tracked = self._tasks.get(task_ref.task_id) or TrackedTask(task_ref, self._clock)
        tracked.task_ref = task_ref
        self._tasks[task_ref.task_id] = tracked
        if progress_token is not None:
            self._by_token[progress_token] = tracked
        return tracked

    def notify(self, task_id: str) -> None:
        """Note that a task may have changed."""
        tracked = self._tasks.get(task_id)
        if tracked is not None:
            tracked.notify()

    def new_progress_token(self) -> str:
        """Return a new progress token for a call."""
        return f"raincheck-{secrets.token_hex(8)}"

    def handle_message(self, message: IncomingMessage) -> None:
        """Handle any message from the server."""
        if isinstance(message, ProgressNotification):
            params = message.params
            tracked = self._by_token.get(str(params.progress_token)) or self.find_related(params.meta)
            if tracked is not None:
                tracked.record_progress(TaskProgress(params.progress, params.total), params.message)

    def find_related(self, meta: Mapping[str, Any] | None) -> TrackedTask | None:
        """Return the task that a message belongs to, by its `_meta`."""
        task_id = as_object((meta or {}).get(RELATED_TASK)).get("taskId")
        return self._tasks.get(task_id) if isinstance(task_id, str) else None
