"""Attach durable tasks to a server of the `mcp` SDK.

`Tasks` is the one object that a server's author attaches. It also adds, replaces and removes ready-made tools while the
server runs, such as tools that a file defines. The options of a tool combine those of the SDK with the task policy.
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

from raincheck.clock import Clock, StoreClock
from raincheck.core.limits import Quota
from raincheck.core.payload import Json
from raincheck.engine import Engine, Settings, Toolbox
from raincheck.engine.process_signals import stop_signals
from raincheck.engine.tool import TaskTool
from raincheck.errors import ConfigurationError
from raincheck.server.attach import attach
from raincheck.server.explain import Explanation, explain_all
from raincheck.server.identity import Anonymous, OwnerFunction
from raincheck.server.runtime import FALLBACK_WAIT, ServerOptions, ServerRuntime
from raincheck.server.sdk_compat import AnyServer, lowlevel_of, tool_of
from raincheck.server.tools.functions import ServedFunction, make_direct_call, name_of, request_parameter
from raincheck.server.tools.json_schema import (
    InputSchema,
    apply_schema,
    make_argument_check,
    make_schema_body,
    stand_in,
    unwrap_value,
)
from raincheck.server.tools.policy import ServedToolSettings, TaskPolicy
from raincheck.server.tools.registry import ToolRegistry, check_settings
from raincheck.server.tools.task_session import SdkContextFactory
from raincheck.server.tools.tool_list import DynamicToolList, ToolListChanges
from raincheck.server.unix.server import UnixListener, serve_until_signal
from raincheck.wire.fallback_tools import FallbackTools


class SdkToolOptions(TypedDict, total=False):
    """Options of the SDK's own `tool`, besides the name."""

    title: str | None
    description: str | None
    annotations: ToolAnnotations | None
    icons: list[Icon] | None
    meta: dict[str, Any] | None
    structured_output: bool | None


class ToolOptions(SdkToolOptions, ServedToolSettings, total=False):
    """Options of the SDK's own `tool`, and settings of its tasks."""


def split(options: ToolOptions) -> tuple[SdkToolOptions, ServedToolSettings]:
    """Split options into those of the SDK and the settings of tasks."""
    listing = {name: options.get(name) for name in SdkToolOptions.__annotations__}
    settings = {name: value for name, value in options.items() if name not in listing}
    return cast("SdkToolOptions", listing), cast("ServedToolSettings", settings)


class DynamicToolOptions(TypedDict, total=False):
    """Options of a dynamic tool, besides its name and its input schema."""

    title: str | None
    description: str | None
    annotations: ToolAnnotations | None
    policy: TaskPolicy | None
    """How its calls become tasks."""


class DynamicTools:
    """Base of `Tasks` that adds, replaces and removes ready-made tools of a server."""

    _server: MCPServer[Any] | None
    _lowlevel: Server[Any]
    _tools: ToolRegistry
    _runtime: ServerRuntime
    _toolbox: Toolbox
    _list_changed: ToolListChanges | None = None
    _tool_list: DynamicToolList | None = None

    def add(self, tool: TaskTool, *, input_schema: Mapping[str, Json], **options: Unpack[DynamicToolOptions]) -> None:
        """Serve a tool that declares its arguments in a JSON Schema, which is listed unchanged.

        Arguments are validated against the schema before there is a task. The body returns JSON, which is the result.

        Raises:
            ConfigurationError: the tool can't be served like that, or its name is taken.
        """
        self._tools.check_free(tool.name)
        self._register(tool, input_schema, options)

    def replace(
        self, tool: TaskTool, *, input_schema: Mapping[str, Json], **options: Unpack[DynamicToolOptions]
    ) -> None:
        """Replace a tool that was added. New calls get this one.

        Running and waiting tasks continue with the version that they started with. A tool of the same version takes
        over waiting tasks, too.

        Raises:
            ConfigurationError: the tool can't be served like that, or none of its name was added.
        """
        self._tools.check_dynamic(tool.name)
        self._register(tool, input_schema, options)

    def remove(self, name: str) -> None:
        """Stop serving a tool that was added. It vanishes from the list, and its running and waiting tasks continue.

        Raises:
            ConfigurationError: no tool of this name was added.
        """
        self._tools.check_dynamic(name)
        self._tools.remove(name)
        if self._server is not None:
            self._server.remove_tool(name)

    async def notify_list_changed(self) -> None:
        """Notify callers that the tools have changed. Call it once, after adding, replacing or removing tools."""
        if self._list_changed is not None:
            await self._list_changed.notify()

    def _register(self, tool: TaskTool, input_schema: Mapping[str, Json], options: DynamicToolOptions) -> None:
        schema = InputSchema(tool.name, input_schema)
        policy = options.get("policy") or TaskPolicy()
        if isinstance(policy.idempotency, str) and policy.idempotency not in schema.names:
            raise ConfigurationError(
                f"tool {tool.name!r} has no argument {policy.idempotency!r}, which its idempotency setting names: "
                f"name one of its arguments"
            )
        served = _as_served(tool, schema)
        self._list_changed = self._list_changed or ToolListChanges(self._server, self._lowlevel)
        sdk = self._register_sdk_tool(tool.name, options)
        apply_schema(sdk, schema, options.get("description") or "")
        sdk.fn = make_direct_call(sdk, self._runtime)
        self._tools.add_dynamic(served, policy, sdk)

    def set_tool_rebuilder(self, rebuild: Callable[[bytes], tuple[TaskTool, Mapping[str, Json]]]) -> None:
        """Set the function that makes a missing tool and its schema from its definition, so that its tasks continue."""

        def served(definition: bytes) -> TaskTool:
            tool, schema = rebuild(definition)
            return _as_served(tool, InputSchema(tool.name, schema))

        self._toolbox.build_from_definition = served

    def _register_sdk_tool(self, name: str, options: DynamicToolOptions) -> SdkTool:
        """List a tool of this name, in place of any other, and return the SDK's tool."""
        listing = {"title": options.get("title"), "annotations": options.get("annotations")}
        if self._server is None:
            self._tool_list = self._tool_list or DynamicToolList(self._lowlevel, self._tools)
            return SdkTool.from_function(stand_in, name=name, **listing)  # type: ignore[arg-type] # its own parameters
        if tool_of(self._server, name) is not None:
            self._server.remove_tool(name)
        self._server.add_tool(stand_in, name=name, **listing)  # type: ignore[arg-type] # likewise
        added = tool_of(self._server, name)
        assert added is not None  # noqa: S101 - just added
        return added


def _as_served(tool: TaskTool, schema: InputSchema) -> TaskTool:
    return replace(
        tool, body=make_schema_body(tool), validate=make_argument_check(tool, schema), extract_value=unwrap_value
    )


F = TypeVar("F", bound=Callable[..., Any])

UNNAMED = "mcp-server"
"""The SDK's name for a server without a name."""

TASKS_ATTRIBUTE = "raincheck_tasks"
"""The attribute of a server that holds its tasks."""


class Tasks(DynamicTools):
    """Durable tasks for a server.

        mcp = MCPServer("reports")
        tasks = Tasks(mcp)

        @tasks.tool(inline_for=2)
        async def build_report(year: int, task: TaskContext) -> Report: ...

    Tasks start and stop with the server, and resume where an earlier process left them. `store` is a URL or a path (see
    `open_store`). `namespace` keeps servers on one store apart; the default is the server's name. With `works=False`
    this process accepts tasks and answers for them, and leaves running them to other processes. `owner` is for servers
    with their own authentication: it returns the owner of a request. An anonymous caller over HTTP has access to a
    task by its id; with `anonymous="session"`, only in the session that created it. A caller without tasks waits for at
    most `fallback_wait` seconds, and then continues by calling `fallback_tools`; with None, it waits for the result.

    Raises:
        ConfigurationError: tasks can't be attached to this server like that.
    """

    DEFAULTS: ClassVar[Settings] = Settings(grace=1.0, quota=Quota(live=10_000, created=1_000))
    """The default settings of a server, to start from: `settings=replace(Tasks.DEFAULTS, concurrency=4)`.

    Callers may be anonymous, so new tasks per minute are limited. Hosts that start a server give it about two seconds
    to stop, in which bodies are handed back.
    """

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
        fallback_wait: float | None = FALLBACK_WAIT,
        fallback_tools: FallbackTools | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._lowlevel = lowlevel = lowlevel_of(server)
        if namespace is None and lowlevel.name == UNNAMED:
            raise ConfigurationError(
                "tasks are stored under the name of their server, so that other servers on the store don't run them: "
                'name the server, as in MCPServer("reports"), or pass a namespace'
            )
        options = ServerOptions(
            store=store,
            namespace=lowlevel.name if namespace is None else namespace,
            settings=self.DEFAULTS if settings is None else settings,
            clock=clock or StoreClock(),
            works=works,
            owner=owner,
            anonymous=anonymous,
            fallback_wait=fallback_wait,
            fallback_tools=FallbackTools() if fallback_tools is None else fallback_tools,
        )
        self.server = server
        """The server that the tasks are attached to."""
        self._server = server if isinstance(server, MCPServer) else None
        self._sdk_contexts = SdkContextFactory(self._server)
        self._toolbox = Toolbox()
        self._tools = ToolRegistry(lowlevel, self._toolbox, self._sdk_contexts)
        self._runtime = ServerRuntime(options, self._toolbox, self._tools.expected)
        attach(lowlevel, self._runtime, self._tools, self._sdk_contexts)
        # On the server itself: a global table would keep both alive forever.
        vars(lowlevel)[TASKS_ATTRIBUTE] = self

    @staticmethod
    def of(server: AnyServer) -> "Tasks | None":
        """Return the tasks that are attached to a server, or None."""
        return vars(lowlevel_of(server)).get(TASKS_ATTRIBUTE)

    @property
    def engine(self) -> Engine:
        """The engine that runs the tasks, while the server runs.

        Raises:
            ConfigurationError: the server is not running.
        """
        return self._runtime.engine

    @property
    def options(self) -> ServerOptions:
        """How tasks are stored, run and served: the author's options, with the changes made by `configure`."""
        return self._runtime.options

    def configure(
        self,
        *,
        store: str | PathLike[str] | None = None,
        works: bool | None = None,
        concurrency: int | None = None,
        queues: frozenset[str] | None = None,
    ) -> None:
        """Override the author's options before the server starts. None leaves a value unchanged.

        Raises:
            ConfigurationError: a value is invalid, or the server is already running.
        """
        self._runtime.configure({"store": store, "works": works}, {"concurrency": concurrency, "queues": queues})

    def skip_grace(self) -> None:
        """Stop waiting for bodies to end by themselves, while the server stops."""
        self._runtime.skip_grace()

    async def explain(self, store: str | PathLike[str] | None = None) -> Explanation:
        """Explain what callers of each tool get now, and why: from the running server, or else from its store.

        Raises:
            ConfigurationError: a store is named, and does not exist.
        """
        return await explain_all(self._server, self._tools, self._runtime, store)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Engine]:
        """Run tasks without serving requests: for a process that only works, and for tests."""
        async with self._lowlevel.lifespan(self._lowlevel):
            yield self.engine

    async def run_until_signal(self) -> None:
        """Run tasks without serving requests, until SIGTERM or SIGINT. A second signal skips the grace period."""
        with stop_signals(self.skip_grace) as stop_requested:
            async with self.running():
                await stop_requested.wait()

    async def serve_unix(
        self, path: str | PathLike[str], *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED
    ) -> None:
        """Serve on a Unix socket, for this user alone, until cancelled. `start` of an anyio task group waits for it.

        Raises:
            ConfigurationError: the server can't listen there, or another server does.
        """
        await UnixListener(self._lowlevel, path).serve(task_status)

    def run_unix(self, path: str | PathLike[str]) -> None:
        """Serve on a Unix socket until SIGTERM or SIGINT. A second signal skips the grace period."""
        asyncio.run(serve_until_signal(self.serve_unix(path), self.skip_grace))

    @overload
    def tool(self, fn: F, /) -> F: ...

    @overload
    def tool(self, /, *, name: str | None = None, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...

    def tool(self, fn: Any = None, /, *, name: str | None = None, **options: Unpack[ToolOptions]) -> Any:
        """Register a function as a tool whose calls become tasks. The function itself is unchanged.

        It accepts the options of the SDK's own `tool`. `TaskPolicy` and `TaskTool` document the other settings. A
        parameter of type `TaskContext` (in a plain function: `SyncTaskContext`) receives the task, and is not
        one of the arguments.

        Raises:
            ConfigurationError: the function can't be served like that.
        """
        listing, settings = split(options)
        check_settings(name or getattr(fn, "__name__", None), settings)

        def decorate(fn: F) -> F:
            if self._server is None:
                raise ConfigurationError(
                    "a low-level server defines its tools in its own handlers: serve this tool there, "
                    "and pass its name to enable()"
                )
            function = ServedFunction(fn, name_of(fn, name), self._sdk_contexts, **listing)
            self._tools.add(function, settings)
            stand_in = function.stand_in(
                make_direct_call(function.sdk, self._runtime), *request_parameter(function.sdk)
            )
            self._server.add_tool(stand_in, name=function.name, **listing)  # type: ignore[arg-type] # its own parameters
            self._tools.link_sdk_tool(function.name)
            return fn

        return decorate if fn is None else decorate(fn)

    def enable(self, pattern: str, /, **settings: Unpack[ServedToolSettings]) -> None:
        """Run tools that other code registered as tasks: one by its name, or all that match a pattern.

        Raises:
            ConfigurationError: they can't run as tasks.
        """
        self._tools.enabled.check(pattern, settings, allow_patterns=self._server is not None)
        check_settings(pattern, settings)
        self._tools.enabled.add(pattern, settings)
