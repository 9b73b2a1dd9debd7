"""Tasks for a server of the `mcp` SDK: the one thing that its author attaches.

Tools that are ready to run, and that come and go while a server runs: such as those that a file defines.

What can be said of a tool that is served: what the SDK lists of it, and how its calls become tasks.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from os import PathLike
from typing import Any, ClassVar, TypedDict, TypeVar, Unpack, cast, overload

from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Icon, MCPServer
from mcp.server.mcpserver.tools import Tool as SdkTool
from mcp_types import ToolAnnotations

from raincheck.clock import Clock, StoresClock
from raincheck.core.limits import Quota
from raincheck.core.payload import Json
from raincheck.engine import Engine, Settings, Toolbox
from raincheck.engine.signals import signals
from raincheck.engine.tool import TaskTool
from raincheck.errors import ConfigurationError
from raincheck.server.attach import attach
from raincheck.server.explain import Explanation, explain_all
from raincheck.server.identity import Anonymous, OwnerFunction
from raincheck.server.runtime import PLAIN_WAIT, Options, Running
from raincheck.server.sdk_compat import AnyServer, lowlevel_of, tool_of
from raincheck.server.tools.functions import ServedFunction, caller_of, name_of, request_parameter
from raincheck.server.tools.json_schema import InputSchema, accepting, body_of, list_by_schema, stand_in, value_in
from raincheck.server.tools.policy import ServedSettings, TaskPolicy
from raincheck.server.tools.registry import ServedTools, check_settings
from raincheck.server.tools.task_session import Workplace
from raincheck.server.tools.tool_list import ReadyListing, ToolChanges
from raincheck.server.unix.server import UnixListener, serve_until_signal
from raincheck.wire.fallback_tools import PlainTools


class Listing(TypedDict, total=False):
    """What the SDK's own `tool` takes besides a name."""

    title: str | None
    description: str | None
    annotations: ToolAnnotations | None
    icons: list[Icon] | None
    meta: dict[str, Any] | None
    structured_output: bool | None


class ToolOptions(Listing, ServedSettings, total=False):
    """Both."""


def split(options: ToolOptions) -> tuple[Listing, ServedSettings]:
    """The one and the other."""
    listing = {name: options.get(name) for name in Listing.__annotations__}
    settings = {name: value for name, value in options.items() if name not in listing}
    return cast("Listing", listing), cast("ServedSettings", settings)


class ReadyOptions(TypedDict, total=False):
    """What can be said of one besides its name and what it takes."""

    title: str | None
    description: str | None
    annotations: ToolAnnotations | None
    policy: TaskPolicy | None
    """How its calls become tasks."""


class ReadyTools:
    """What tasks of a server can be told of such tools."""

    _server: MCPServer[Any] | None
    _lowlevel: Server[Any]
    _tools: ServedTools
    _running: Running
    _toolbox: Toolbox
    _changes: ToolChanges | None = None
    _listing: ReadyListing | None = None

    def add(self, tool: TaskTool, *, input_schema: Mapping[str, Json], **options: Unpack[ReadyOptions]) -> None:
        """Serve a tool that says what it takes in a JSON Schema, which is listed as it is.

        Arguments are held against the schema before there is a task. What the body returns is JSON, and is the result.

        Raises:
            ConfigurationError: it can't work like that, or there is one of its name.
        """
        self._tools.check_free(tool.name)
        self._serve(tool, input_schema, options)

    def replace(self, tool: TaskTool, *, input_schema: Mapping[str, Json], **options: Unpack[ReadyOptions]) -> None:
        """Serve a tool in the place of one that was added. New calls get this one.

        What runs or waits goes on with the version that it began with. A tool that is of the same version takes over
        what waits, too.

        Raises:
            ConfigurationError: it can't work like that, or none of its name was added.
        """
        self._tools.check_ready(tool.name)
        self._serve(tool, input_schema, options)

    def remove(self, name: str) -> None:
        """Serve a tool no more that was added. It vanishes from the list, and what runs or waits goes on.

        Raises:
            ConfigurationError: none of this name was added.
        """
        self._tools.check_ready(name)
        self._tools.remove(name)
        if self._server is not None:
            self._server.remove_tool(name)

    async def tell_of_changes(self) -> None:
        """Tell callers that there are other tools now: once, after whatever was added, replaced or removed."""
        if self._changes is not None:
            await self._changes.tell()

    def _serve(self, tool: TaskTool, input_schema: Mapping[str, Json], options: ReadyOptions) -> None:
        schema = InputSchema(tool.name, input_schema)
        policy = options.get("policy") or TaskPolicy()
        if isinstance(policy.idempotency, str) and policy.idempotency not in schema.names:
            raise ConfigurationError(
                f"tool {tool.name!r}: idempotency names an argument, and it has no {policy.idempotency!r}"
            )
        served = _as_served(tool, schema)
        self._changes = self._changes or ToolChanges(self._server, self._lowlevel)
        sdk = self._list(tool.name, options)
        list_by_schema(sdk, schema, options.get("description") or "")
        sdk.fn = caller_of(sdk, self._running)
        self._tools.keep_ready(served, policy, sdk)

    def serve_older(self, rebuild: Callable[[bytes], tuple[TaskTool, Mapping[str, Json]]]) -> None:
        """Let tasks go on whose tool is not here any more: `rebuild` makes it, and its schema, of its definition."""

        def served(definition: bytes) -> TaskTool:
            tool, schema = rebuild(definition)
            return _as_served(tool, InputSchema(tool.name, schema))

        self._toolbox.rebuild = served

    def _list(self, name: str, options: ReadyOptions) -> SdkTool:
        """Have a tool of this name listed, in the place of any that was, and return it as the SDK has it."""
        said = {"title": options.get("title"), "annotations": options.get("annotations")}
        if self._server is None:
            self._listing = self._listing or ReadyListing(self._lowlevel, self._tools)
            return SdkTool.from_function(stand_in, name=name, **said)  # type: ignore[arg-type] # its own parameters
        if tool_of(self._server, name) is not None:
            self._server.remove_tool(name)
        self._server.add_tool(stand_in, name=name, **said)  # type: ignore[arg-type] # likewise
        found = tool_of(self._server, name)
        assert found is not None  # noqa: S101 - just added
        return found


def _as_served(tool: TaskTool, schema: InputSchema) -> TaskTool:
    return replace(tool, body=body_of(tool), accepts=accepting(tool, schema), value_of=value_in)


F = TypeVar("F", bound=Callable[..., Any])

UNNAMED = "mcp-server"
"""What the SDK calls a server that was given no name."""

ATTACHED = "raincheck_tasks"
"""Where a server keeps its tasks."""


class Tasks(ReadyTools):
    """Durable tasks for a server.

        mcp = MCPServer("reports")
        tasks = Tasks(mcp)

        @tasks.tool(inline_for=2)
        async def build_report(year: int, task: TaskContext) -> Report: ...

    They start and stop with the server, and go on where an earlier process left them. `store` is a URL or a path (see
    `open_store`); `namespace` keeps servers on one store apart, and is the server's name unless another is given;
    with `works=False` this process takes tasks and answers for them, and leaves the running to others. `owner` is for
    servers with an authentication of their own: it says whose a request is. A caller over HTTP that nobody knows gets
    at a task by its id; with `anonymous="session"`, only in the session in which it began. A caller without tasks waits
    for at most `plain_wait` seconds, and then goes on by calling `plain_tools`; with None, it waits for the result.

    Raises:
        ConfigurationError: tasks can't be attached to this server like that.
    """

    DEFAULTS: ClassVar[Settings] = Settings(grace=1.0, quota=Quota(live=10_000, created=1_000))
    """The settings of a server, to start from: `settings=replace(Tasks.DEFAULTS, concurrency=4)`.

    Callers may be strangers, so there is a bound on new tasks a minute; and hosts that start a server give it about two
    seconds to stop, in which bodies are handed back."""

    def __init__(
        self,
        server: AnyServer,
        store: str | PathLike[str] | None = None,
        *,
        namespace: str | None = None,
        settings: Settings | None = None,
        works: bool = True,
        owner: OwnerFunction | None = None,
        anonymous: Anonymous = "id",
        plain_wait: float | None = PLAIN_WAIT,
        plain_tools: PlainTools | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._lowlevel = lowlevel = lowlevel_of(server)
        if namespace is None and lowlevel.name == UNNAMED:
            raise ConfigurationError(
                "tasks are kept under their server's name, so that others on the same store don't run them: "
                'name the server, as in MCPServer("reports"), or give a namespace'
            )
        options = Options(
            store=store,
            namespace=lowlevel.name if namespace is None else namespace,
            settings=self.DEFAULTS if settings is None else settings,
            clock=clock or StoresClock(),
            works=works,
            owner=owner,
            anonymous=anonymous,
            plain_wait=plain_wait,
            plain_tools=PlainTools() if plain_tools is None else plain_tools,
        )
        self.server = server
        """The server that they are attached to."""
        self._server = server if isinstance(server, MCPServer) else None
        self._workplace = Workplace(self._server)
        self._toolbox = Toolbox()
        self._tools = ServedTools(lowlevel, self._toolbox, self._workplace)
        self._running = Running(options, self._toolbox, self._tools.expected)
        attach(lowlevel, self._running, self._tools, self._workplace)
        # On the server itself: in a table of ours, the two would hold each other for good.
        vars(lowlevel)[ATTACHED] = self

    @staticmethod
    def of(server: AnyServer) -> "Tasks | None":
        """The tasks that are attached to a server, if there are any."""
        return vars(lowlevel_of(server)).get(ATTACHED)

    @property
    def engine(self) -> Engine:
        """What runs the tasks, while the server runs.

        Raises:
            ConfigurationError: the server does not run.
        """
        return self._running.engine

    @property
    def options(self) -> Options:
        """How they are kept, run and served: as its author said, or as it was configured since."""
        return self._running.options

    def configure(
        self,
        *,
        store: str | PathLike[str] | None = None,
        works: bool | None = None,
        concurrency: int | None = None,
        queues: frozenset[str] | None = None,
    ) -> None:
        """Have it otherwise than its author said, before it starts. None leaves it as it is.

        Raises:
            ConfigurationError: it can't be so, or it runs already.
        """
        self._running.configure({"store": store, "works": works}, {"concurrency": concurrency, "queues": queues})

    def hurry(self) -> None:
        """While it stops: wait no longer for bodies to end by themselves."""
        self._running.hurry()

    async def explain(self, store: str | PathLike[str] | None = None) -> Explanation:
        """What callers of each tool get now, and why: by what the server knows if it runs, else by its store.

        Raises:
            ConfigurationError: a store is named, and is not there.
        """
        return await explain_all(self._server, self._tools, self._running, store)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Engine]:
        """Run tasks without serving anybody: for a process that only works, and for tests."""
        async with self._lowlevel.lifespan(self._lowlevel):
            yield self.engine

    async def run_until_signal(self) -> None:
        """Run tasks without serving anybody, until SIGTERM or SIGINT. A second signal cuts the waiting short."""
        with signals(self.hurry) as told:
            async with self.running():
                await told.wait()

    async def serve_unix(
        self, path: str | PathLike[str], *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED
    ) -> None:
        """Serve on a Unix socket, for this user alone, until cancelled. `start` of an anyio task group waits for it.

        Raises:
            ConfigurationError: it can't listen there, or another server does.
        """
        await UnixListener(self._lowlevel, path).serve(task_status)

    def run_unix(self, path: str | PathLike[str]) -> None:
        """Serve on a Unix socket until SIGTERM or SIGINT. A second signal cuts the waiting short."""
        asyncio.run(serve_until_signal(self.serve_unix(path), self.hurry))

    @overload
    def tool(self, fn: F, /) -> F: ...

    @overload
    def tool(self, /, *, name: str | None = None, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...

    def tool(self, fn: Any = None, /, *, name: str | None = None, **options: Unpack[ToolOptions]) -> Any:
        """Make a function a tool whose calls become tasks. The function itself stays as it is.

        It takes what the SDK's own `tool` takes; `TaskPolicy` and `TaskTool` say what can be set besides. A parameter
        that is a `TaskContext` (in a plain function: a `SyncTaskContext`) is the task, and not among the arguments.

        Raises:
            ConfigurationError: it can't work like that.
        """
        listing, settings = split(options)
        check_settings(name or getattr(fn, "__name__", None), settings)

        def decorate(fn: F) -> F:
            if self._server is None:
                raise ConfigurationError(
                    "a low-level server makes its tools itself: let its handlers serve this one, and enable it here"
                )
            function = ServedFunction(fn, name_of(fn, name), self._workplace, **listing)
            self._tools.add(function, settings)
            stand_in = function.stand_in(caller_of(function.sdk, self._running), *request_parameter(function.sdk))
            self._server.add_tool(stand_in, name=function.name, **listing)  # type: ignore[arg-type] # its own parameters
            self._tools.take_listed(function.name)
            return fn

        return decorate if fn is None else decorate(fn)

    def enable(self, pattern: str, /, **settings: Unpack[ServedSettings]) -> None:
        """Let tools that somebody else registered run as tasks: one by its name, or all that match a pattern.

        Raises:
            ConfigurationError: they can't.
        """
        self._tools.enabled.check(pattern, settings, may_match=self._server is not None)
        check_settings(pattern, settings)
        self._tools.enabled.add(pattern, settings)
