"""Shared code of the task protocols: the protocol interface, tool calls and requests about tasks.

`TaskProtocol` is the common interface for 2026-07-28, 2025-11-25 and the fallback tools. A tool call returns a result,
a task, or a text about a task. The server's tools are listed once for each connection.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, Self, TypeGuard, TypeVar, cast
from weakref import WeakKeyDictionary

from mcp.client import Client
from mcp.client.session import ClientSession  # noqa: TC002 - with the runtime imports
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolResult, ListToolsResult, PaginatedRequestParams, Request, Result, Tool
from pydantic import BeforeValidator, ConfigDict, Field, ValidationError

from raincheck.client.errors import InvalidResponse
from raincheck.client.inputs import Question
from raincheck.client.saved_calls import ProtocolName
from raincheck.client.tracker import TaskProgress, TrackedTask, Update
from raincheck.core.lifecycle import Status
from raincheck.errors import CancelRefused, TaskNotFound
from raincheck.wire.fallback_text import TASK_META_KEY, TOOLS_META_KEY
from raincheck.wire.fields import LARGEST_INTEGER, SUPPORTS_KEYS_META_KEY, as_object


def is_number(value: object) -> TypeGuard[float]:
    """Return whether the value is a finite number in the safe range: NaN and infinity are not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -LARGEST_INTEGER <= value <= LARGEST_INTEGER


def read_progress(done: object, total: object) -> TaskProgress | None:
    """Parse a task's progress; None if it is not a number."""
    if not is_number(done):
        return None
    return TaskProgress(float(done), float(total) if is_number(total) else None)


def _seconds(milliseconds: object) -> float | None:
    return float(milliseconds) / 1_000 if is_number(milliseconds) else None


def _status(value: object) -> Status:
    return Status(value) if isinstance(value, str) and value in set(Status) else Status.WORKING


Seconds = Annotated[float | None, BeforeValidator(_seconds)]
"""An interval that is sent in milliseconds; None if it is not a valid number."""
OptionalText = Annotated[str | None, BeforeValidator(lambda value: value if isinstance(value, str) else None)]
InitialStatus = Annotated[Status, BeforeValidator(_status)]
"""The status of a task that was just created. Only the id of such a task matters: its status can be polled."""


class TaskResult(Result):
    """The fields of a task that both versions have."""

    model_config = ConfigDict(extra="allow")
    task_id: str = Field(min_length=1)
    status: Status
    status_message: OptionalText = None


ResultT = TypeVar("ResultT", bound=Result)


class TaskRequest(Request[dict[str, Any], str]):
    """A request about one task."""

    name_param: ClassVar[str | None] = "taskId"  # for the header that carries the task's id


class AnyResult(Result):
    """A result without expected fields."""

    model_config = ConfigDict(extra="allow")


async def send_task_request(
    client: Client,
    method: str,
    task_id: str,
    result_type: type[ResultT],
    **params: Any,  # noqa: ANN401 - the method's parameters
) -> ResultT:
    """Send a request about a task.

    Raises:
        TaskNotFound: the server does not know the task, or this caller may not see it.
        InvalidResponse: the response does not conform to the protocol.
    """
    request = TaskRequest(method=method, params={"taskId": task_id, **params})
    try:
        with map_validation_errors(f"the response to {method}"):
            return await client.session.send_request(request, result_type)
    except MCPError as error:
        # For other methods this code may mean another error, or the error that the task itself failed with.
        if error.error.code == INVALID_PARAMS and method == "tasks/get":
            raise TaskNotFound(task_id) from error
        raise


@contextmanager
def map_validation_errors(subject: str) -> Generator[None]:
    """Map validation errors of responses.

    Raises:
        InvalidResponse: the response does not conform to the protocol.
    """
    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(map(str, first["loc"])) or "the whole object"
        raise InvalidResponse(f"{subject} is ill-formed: {path}: {first['msg']}") from error


def read_result(result: object) -> CallToolResult:
    """Parse the result of a tool.

    Raises:
        InvalidResponse: it is not a tool result.
    """
    with map_validation_errors("the result of the tool"):
        return CallToolResult.model_validate(result, by_name=False)


@contextmanager
def map_schema_errors(tool: str) -> Generator[None]:
    """Map the SDK's errors for results that do not match the tool's output schema.

    Raises:
        InvalidResponse: the result does not match.
    """
    try:
        yield
    except RuntimeError as error:
        # The SDK raises no specific exception class for this.
        if not str(error).startswith((f"Tool {tool} has an output", "Invalid structured", "Invalid schema")):
            raise
        raise InvalidResponse(str(error).splitlines()[0]) from error


Answers = Mapping[str, Mapping[str, Any]]
"""Answers by the keys of the questions, in the protocol's form: `{"action": "accept", "content": {…}}`."""


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A tool call to send."""

    tool: str
    arguments: Mapping[str, Any]
    meta: Mapping[str, Any]
    ttl: float | None = None
    progress_callback: Callable[[TaskProgress, str | None], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The outcome of a call: its result, or a task and the protocol to follow it with."""

    result: CallToolResult | None = None
    task_id: str = ""
    protocol: ProtocolName = "plain"
    tools: Mapping[str, str] = field(default_factory=dict[str, str])
    progress_token: str | None = None
    """The token under which its progress is reported."""


class TaskProtocol(ABC):
    """A way to follow tasks. Implementations do not retry: their callers do."""

    async def start(self, client: Client, call: CallRequest) -> CallOutcome:
        """Call a tool."""
        return await call_tool(client, call)

    @abstractmethod
    async def poll(self, client: Client, tracked: TrackedTask) -> Update:
        """Return the task's current state."""

    @abstractmethod
    async def fetch_result(self, client: Client, tracked: TrackedTask, update: Update) -> CallToolResult:
        """Return the result of a task that has ended, and was not cancelled.

        Raises:
            MCPError: the task failed.
        """

    @abstractmethod
    async def run_callbacks(self, client: Client, tracked: TrackedTask, question: Question | None) -> bool:
        """Run the client's callbacks for a question, or for all that the server sends until the task has ended.

        Returns whether the task has changed. An unchanged task is polled again at its interval.
        """

    @abstractmethod
    async def answer(self, client: Client, tracked: TrackedTask, answers: Answers) -> None:
        """Answer the task's questions."""

    @abstractmethod
    async def cancel(self, client: Client, tracked: TrackedTask) -> None:
        """Request that the task stops. A task that has ended does not change.

        Raises:
            CancelRefused: the task's workflow does not allow it.
        """

    async def listen(self, client: Client, tracked: TrackedTask, update: Update) -> bool:  # noqa: ARG002 - of the protocols that listen
        """Wait for change notifications, for a while. Returns whether it makes sense to listen again."""
        return False


MAX_PAGES = 100
"""The maximum number of pages of a tool list: a server whose cursors form a cycle must not hang a call."""


@dataclass(frozen=True, slots=True)
class ToolInfo:
    """A server's declarations about a tool. The defaults apply to a tool that is not listed."""

    task_support: str = "forbidden"
    """Whether the tool can be called as a task, by its value in 2025-11-25."""
    supports_keys: bool = False
    """Whether the server starts calls of this tool with the same key only once, for this caller."""

    @classmethod
    def of(cls, tool: Tool) -> Self:
        support = (tool.execution.task_support if tool.execution else None) or "forbidden"
        return cls(support, (tool.meta or {}).get(SUPPORTS_KEYS_META_KEY) is True)


class ToolCache:
    """The tools of a server, cached per connection."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[ClientSession, Mapping[str, ToolInfo]] = WeakKeyDictionary()

    def is_cached(self, client: Client) -> bool:
        """Return whether the tools have been listed on this connection."""
        return client.session in self._known

    async def find(self, client: Client, tool: str) -> ToolInfo:
        """Return the server's declarations about a tool."""
        tools_by_name = self._known.get(client.session)
        if tools_by_name is None:
            with map_validation_errors("the list of tools"):
                tools = await read_all_tools(partial(self._read_page, client))
            tools_by_name = {tool.name: ToolInfo.of(tool) for tool in tools}
            self._known[client.session] = tools_by_name
        return tools_by_name.get(tool, ToolInfo())

    async def _read_page(self, client: Client, cursor: str | None) -> ListToolsResult:
        params = {"cursor": cursor, "_meta": {SUPPORTS_KEYS_META_KEY: True}}
        return await client.session.list_tools(params=PaginatedRequestParams.model_validate(params))

    def invalidate(self, client: Client) -> None:
        """List the tools again on the next use."""
        self._known.pop(client.session, None)


async def read_all_tools(read_page: Callable[[str | None], Awaitable[ListToolsResult]]) -> list[Tool]:
    """Return all tools of a server. `read_page` is called with a cursor; None for the first page."""
    tools: list[Tool] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await read_page(cursor)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return tools


class TaskPlaceholder(CallToolResult):
    """Stands for a task where the SDK requires a result. An error result, so that the SDK does not validate it."""

    model_config = ConfigDict(extra="allow")
    is_error: bool = True
    task_id: str


async def call_tool(client: Client, call: CallRequest) -> CallOutcome:
    """Call a tool through the SDK's client."""

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        if call.progress_callback is not None:
            await call.progress_callback(TaskProgress(progress, total), message)

    with map_validation_errors(f"the response to a call of {call.tool!r}"), map_schema_errors(call.tool):
        result = await client.call_tool(
            call.tool,
            dict(call.arguments),
            progress_callback=None if call.progress_callback is None else on_progress,
            meta=dict(call.meta),  # pyright: ignore[reportArgumentType] - it may contain keys that the SDK does not know
        )
    return read_call_result(result)


def read_call_result(result: CallToolResult) -> CallOutcome:
    """Return the outcome of a call: its result, or the task that the result contains."""
    if isinstance(result, TaskPlaceholder):
        return CallOutcome(task_id=result.task_id, protocol="2026-07-28")
    meta: Mapping[str, Any] = result.meta or {}
    task_id, tools = meta.get(TASK_META_KEY), meta.get(TOOLS_META_KEY)
    if not isinstance(task_id, str) or not isinstance(tools, Mapping) or result.is_error:
        return CallOutcome(result)
    names = {str(purpose): str(name) for purpose, name in cast("Mapping[Any, Any]", tools).items()}
    return CallOutcome(task_id=task_id, protocol="plain", tools=names)


CANCEL_REFUSED_TEXT = re.compile(
    r"can't be cancelled \(([\w-]+)\): (.*?)(?:\. It (?:goes on|continues)\.)?$", re.DOTALL
)
"""Matches the reason code and the explanation in the text of a server of any version."""


def parse_cancel_refusal(task_id: str, data: Any) -> CancelRefused | None:  # noqa: ANN401 - any JSON from a server
    """Parse a refusal in its machine-readable form; None if the data has another form."""
    reason, message = (as_object(data).get(name) for name in ("reason", "message"))
    if not isinstance(reason, str) or not isinstance(message, str):
        return None
    match = CANCEL_REFUSED_TEXT.search(message)
    return CancelRefused(task_id, reason, message if match is None else match[2])
