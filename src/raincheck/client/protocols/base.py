"""Requests that the SDK's client does not know: the methods of tasks, and calls that ask for a task.

The SDK checks the answer to `tools/call` against what the version has for it, and has no tasks there. So that one is
sent past the check; everything else goes through the session's front door.

The ways to talk about a task, behind one front: 2026-07-28, 2025-11-25, and tools.

What a server tells of its tools, asked once for each connection.

Calls of tools as the SDK makes them, and what may come of them: a result, a task, or words about one.

What tells the SDK's client of tasks: that it takes them, and what to do with one.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self, TypeVar, cast
from weakref import WeakKeyDictionary

from mcp.client import Client
from mcp.client.extension import ClaimContext, ClientExtension, NotificationBinding, ResultClaim
from mcp.client.session import ClientSession  # noqa: TC002 - with the others
from mcp.shared.dispatcher import CallOptions  # noqa: TC002 - with the others
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolResult, PaginatedRequestParams, Request, Result, Tool
from pydantic import BaseModel, ConfigDict, ValidationError

from raincheck.client.errors import BadAnswer
from raincheck.client.protocols.models import Created
from raincheck.client.saved_calls import TierName
from raincheck.client.tracker import Held
from raincheck.client.updates import Progress, Question, Update
from raincheck.errors import TaskNotFound
from raincheck.wire.fallback_text import HANDLE, TOOLS
from raincheck.wire.results import TAKES_KEYS
from raincheck.wire.v2026 import EXTENSION

ResultT = TypeVar("ResultT", bound=Result)


class TaskRequest(Request[dict[str, Any], str]):
    """A request about one task."""

    name_param: ClassVar[str | None] = "taskId"  # for the header that names it


class Anything(Result):
    """A result of which nothing is expected."""

    model_config = ConfigDict(extra="allow")


async def ask_about(
    client: Client,
    method: str,
    task_id: str,
    answer: type[ResultT],
    **params: Any,  # noqa: ANN401 - those of the method
) -> ResultT:
    """Send a request about a task.

    Raises:
        TaskNotFound: the server does not know it, or not for this caller.
        BadAnswer: the answer is not what the protocol says.
    """
    request = TaskRequest(method=method, params={"taskId": task_id, **params})
    try:
        with reading(f"the answer to {method}"):
            return await client.session.send_request(request, answer)
    except MCPError as error:
        # Of other methods it may be something else that is wrong, or what the task itself has failed with.
        if error.error.code == INVALID_PARAMS and method == "tasks/get":
            raise TaskNotFound(task_id) from error
        raise


async def call_raw(client: Client, params: Mapping[str, Any]) -> dict[str, Any]:
    """Call a tool, and return whatever the server answers."""
    dispatcher = client.session._dispatcher  # pyright: ignore[reportPrivateUsage] - see above
    options: CallOptions = {}
    if client.read_timeout_seconds is not None:
        options["timeout"] = client.read_timeout_seconds
    return await dispatcher.send_raw_request("tools/call", params, options)


@contextmanager
def reading(what: str) -> Generator[None]:
    """Tell of answers that are not what the protocol says.

    Raises:
        BadAnswer: that it is one.
    """
    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise BadAnswer(f"{what} is ill-formed: {where}: {first['msg']}") from error


def read_result(result: object) -> CallToolResult:
    """The result of a tool.

    Raises:
        BadAnswer: it is none.
    """
    with reading("the result of the tool"):
        return CallToolResult.model_validate(result, by_name=False)


@contextmanager
def checking(tool: str) -> Generator[None]:
    """Tell of results that are not what the tool says of itself, which the SDK checks.

    Raises:
        BadAnswer: that it is one.
    """
    try:
        yield
    except RuntimeError as error:
        # The SDK has no class of its own for it.
        if not str(error).startswith((f"Tool {tool} has an output", "Invalid structured", "Invalid schema")):
            raise
        raise BadAnswer(str(error).splitlines()[0]) from error


Answers = Mapping[str, Mapping[str, Any]]
"""Answers by the keys of the questions, as the protocol has them: `{"action": "accept", "content": {…}}`."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool."""

    tool: str
    arguments: Mapping[str, Any]
    meta: Mapping[str, Any]
    ttl: float | None = None
    progressed: Callable[[Progress, str | None], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """What a call came to: its result, or a task and how to talk about it."""

    result: CallToolResult | None = None
    task_id: str = ""
    tier: TierName = "plain"
    tools: Mapping[str, str] = field(default_factory=dict[str, str])
    token: str | None = None
    """What its progress is told under."""


class Tier(Protocol):
    """One way. Nothing here tries again: whoever uses it does."""

    async def begin(self, client: Client, call: Call) -> Begun:
        """Call a tool."""
        ...

    async def look(self, client: Client, held: Held) -> Update:
        """The task as it is."""
        ...

    async def fetch(self, client: Client, held: Held, update: Update) -> CallToolResult:
        """The result of a task that has ended, and was not cancelled.

        Raises:
            MCPError: it has failed.
        """
        ...

    async def attend(self, client: Client, held: Held, question: Question | None) -> bool:
        """Have the client's callbacks asked this, or whatever the server asks by itself, until the task has ended.

        Returns whether the task has changed. One that has not is looked at again when it is time.
        """
        ...

    async def answer(self, client: Client, held: Held, answers: Answers) -> None:
        """Answer what the task asks."""
        ...

    async def cancel(self, client: Client, held: Held) -> None:
        """Ask for the task to be stopped. One that has ended stays as it is.

        Raises:
            CancelRefused: its workflow does not allow it.
        """
        ...

    async def listen(self, client: Client, held: Held, update: Update) -> bool:
        """Have the server tell when the task changes, for a while. Returns whether it is any use to listen again."""
        ...


MOST_PAGES = 100
"""Of a list of tools: a server that pages in circles must not hang a call."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A tool. One that is not listed has nothing to say."""

    task_support: str = "forbidden"
    """Whether it can be called as a task, in the words of 2025-11-25."""
    takes_keys: bool = False
    """Whether the server begins a call of it once, by the key that this caller gives it."""

    @classmethod
    def of(cls, tool: Tool) -> Self:
        support = (tool.execution.task_support if tool.execution else None) or "forbidden"
        return cls(support, (tool.meta or {}).get(TAKES_KEYS) is True)


class Listing:
    """The tools of a server."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[ClientSession, Mapping[str, Listed]] = WeakKeyDictionary()

    def is_known(self, client: Client) -> bool:
        """Whether they have been listed on this connection."""
        return client.session in self._known

    async def find(self, client: Client, tool: str) -> Listed:
        """What is told of a tool."""
        known = self._known.get(client.session)
        if known is None:
            with reading("the list of tools"):
                known = await _listed(client)
            self._known[client.session] = known
        return known.get(tool, Listed())

    def forget(self, client: Client) -> None:
        """Ask anew next time."""
        self._known.pop(client.session, None)


async def _listed(client: Client) -> Mapping[str, Listed]:
    found: dict[str, Listed] = {}
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        asked = {"cursor": cursor, "_meta": {TAKES_KEYS: True}}
        page = await client.session.list_tools(params=PaginatedRequestParams.model_validate(asked))
        found |= {tool.name: Listed.of(tool) for tool in page.tools}
        cursor = page.next_cursor
        if cursor is None:
            break
    return found


Hear = Callable[[str], None]
"""Told the id of a task that has changed."""


class Claimed(CallToolResult):
    """Stands for a task where the SDK wants a result. It says that it is an error, so that it is checked no further."""

    model_config = ConfigDict(extra="allow")
    is_error: bool = True
    created: Created


class _Changed(BaseModel):
    model_config = ConfigDict(extra="allow")
    taskId: str  # noqa: N815 - as it is on the wire


class TakesTasks(ClientExtension):
    """Declares the extension, and hands tasks over as they come."""

    identifier = EXTENSION

    def __init__(self, hear: Hear) -> None:
        self._hear = hear

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Created, resolve=_hand_over)]

    def notifications(self) -> Sequence[NotificationBinding[Any]]:
        methods = ("notifications/tasks", "notifications/tasks/status")
        return [NotificationBinding(method=method, params_type=_Changed, handler=self._told) for method in methods]

    async def _told(self, changed: _Changed) -> None:
        self._hear(changed.taskId)


async def _hand_over(created: Created, ctx: ClaimContext) -> CallToolResult:
    del ctx
    return Claimed(content=[], created=created)


async def call_tool(client: Client, call: Call) -> Begun:
    """Call a tool."""

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        if call.progressed is not None:
            await call.progressed(Progress(progress, total), message)

    with reading(f"the answer to a call of {call.tool!r}"), checking(call.tool):
        result = await client.call_tool(
            call.tool,
            dict(call.arguments),
            progress_callback=None if call.progressed is None else progressed,
            meta=dict(call.meta),  # pyright: ignore[reportArgumentType] - the SDK's own keys, and others
        )
    return read_call(result)


def read_call(result: CallToolResult) -> Begun:
    """What a call came to."""
    if isinstance(result, Claimed):
        return Begun(task_id=result.created.task_id, tier="2026-07-28")
    told: Mapping[str, Any] = result.meta or {}
    task_id, tools = told.get(HANDLE), told.get(TOOLS)
    if not isinstance(task_id, str) or not isinstance(tools, Mapping) or result.is_error:
        return Begun(result)
    names = {str(use): str(name) for use, name in cast("Mapping[Any, Any]", tools).items()}
    return Begun(task_id=task_id, tier="plain", tools=names)
