"""The tasks that a client follows, their updates, and the dispatch of server messages and questions to them."""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast
from weakref import WeakValueDictionary

from mcp.client.session import ClientRequestContext, IncomingMessage
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    CreateMessageResult,
    ElicitResult,
    ErrorData,
    ListRootsResult,
    ProgressNotification,
)
from pydantic import BaseModel, ValidationError

from raincheck.client.inputs import PendingInputs2025, PendingInputs2026, Question, question_key
from raincheck.client.saved_calls import TaskRef
from raincheck.clock import Clock
from raincheck.core.lifecycle import Status
from raincheck.wire.fields import INPUT_META_KEY, RELATED_TASK, as_object


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """A task's progress, in its own unit."""

    done: float
    total: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A snapshot of a task."""

    task_id: str
    status: Status
    message: str | None = None
    """The task's status message."""
    progress: TaskProgress | None = None
    questions: tuple[Question, ...] = ()
    """The open questions, if the server reports them or they are left to `Handle.answer`."""
    server_asks: bool = False
    """Whether the server sends its questions over the connection, as before 2026."""
    poll_after: float | None = field(default=None, compare=False)
    """Seconds after which the server wants the next poll. Not part of the task itself."""
    result: Mapping[str, Any] | None = None
    """The result of a task that has ended, if the server sends it with the task."""
    error: MCPError | None = None
    """The error of a failed task, if the server sends it with the task."""

    @property
    def is_ended(self) -> bool:
        return self.status not in (Status.WORKING, Status.INPUT_REQUIRED)


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

    def without_answered(self, update: Update) -> Update:
        """Return the update without questions that were answered, so that they are not asked again."""
        is_answered = self.inputs_2026.is_answered
        return replace(
            update, questions=tuple(question for question in update.questions if not is_answered(question.key))
        )


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


Callback = Callable[..., Coroutine[Any, Any, Any]]

CALLBACK_OPTIONS = {
    "elicitation/create": "elicitation_callback",
    "sampling/createMessage": "sampling_callback",
    "roots/list": "list_roots_callback",
}
"""The option of the callback that answers each method."""

_RESULT_TYPES: dict[str, type[BaseModel]] = {
    "elicitation/create": ElicitResult,
    "sampling/createMessage": CreateMessageResult,
    "roots/list": ListRootsResult,
}


async def answer_later(context: ClientRequestContext, params: object = None) -> Any:  # noqa: ANN401 - stands in for several callbacks
    """A callback that accepts questions, to be answered with `Handle.answer`.

        TaskClient(server, elicitation_callback=answer_later)

    A server sends questions only to clients that declare that they answer them. A question from a call that is not a
    task is refused, because such a call has no handle.
    """
    del context, params
    return ErrorData(code=INVALID_REQUEST, message="only tasks may ask questions here, and this call is not a task")


def has_callback(options: Mapping[str, object], method: str) -> bool:
    """Return whether one of the client's options is a callback that answers this method."""
    return options.get(CALLBACK_OPTIONS.get(method, "")) not in (None, answer_later)


def wrap_callbacks(options: Mapping[str, Any], tracker: TaskTracker) -> dict[str, Callback]:
    """Wrap the callbacks so that each question reaches them once, even if a task asks again on another connection."""
    return {
        option: _ask_once(tracker, method, options[option])
        for method, option in CALLBACK_OPTIONS.items()
        if options.get(option) is not None
    }


def _ask_once(tracker: TaskTracker, method: str, callback: Callback) -> Callback:
    async def ask(context: ClientRequestContext, *params: BaseModel) -> object:
        tracked = tracker.find_related(cast("Mapping[str, Any] | None", context.meta))
        if tracked is None:
            return await callback(context, *params)
        content = params[0].model_dump(by_alias=True, mode="json", exclude_none=True) if params else {}
        input_key = (context.meta or {}).get(INPUT_META_KEY)
        has_input_key = isinstance(input_key, str)
        key = question_key(method, content, input_key if has_input_key else None)
        if callback is not answer_later:
            return await tracked.inputs_2025.run_callback(
                key, lambda: callback(context, *params), has_input_key=has_input_key
            )
        tracked.notify()
        question = Question(key, {"method": method, "params": content})
        return _read_answer(method, await tracked.inputs_2025.wait_for_answer(question, has_input_key=has_input_key))

    return ask


def _read_answer(method: str, answer: Mapping[str, Any]) -> object:
    try:
        return _RESULT_TYPES[method].model_validate(answer, by_name=False)
    except ValidationError as error:
        return ErrorData(code=INVALID_PARAMS, message=f"invalid answer: {error.errors()[0]['msg']}")
