"""Attach durable tasks to a server of the `mcp` SDK.

`Tasks` is the one object that a server's author attaches. It also adds, replaces and removes ready-made tools while the
server runs, such as tools that a file defines. The options of a tool combine those of the SDK with the task policy.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Set
from contextlib import asynccontextmanager
from os import PathLike
from typing import Any, ClassVar, TypedDict, TypeVar, Unpack, cast, overload

from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from mcp.server.mcpserver import Icon, MCPServer
from mcp.server.mcpserver.tools import Tool as SdkTool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase
from mcp_types import ToolAnnotations

from raincheck.clock import Clock, StoreClock
from raincheck.core.policies import Quota
from raincheck.core.values import Json
from raincheck.engine import Engine, Settings, Toolbox
from raincheck.engine.process_signals import stop_signals
from raincheck.engine.tool import TaskTool
from raincheck.errors import ConfigurationError
from raincheck.server.attach import attach
from raincheck.server.caller import Anonymous, OwnerFunction, OwnerResolver
from raincheck.server.explain import Explanation, explain_all
from raincheck.server.runtime import FALLBACK_WAIT, ServerOptions, ServerRuntime
from raincheck.server.sdk_compat import AnyServer, lowlevel_of, tool_of
from raincheck.server.tools.dynamic_tools import (
    DynamicToolList,
    DynamicToolOptions,
    InputSchema,
    SchemaFuncMetadata,
    ToolListChanges,
    as_served,
    stand_in,
)
from raincheck.server.tools.functions import (
    REQUEST_PARAMETER,
    AnyFunction,
    DirectCalls,
    ServedFunction,
    name_of,
    request_parameter,
)
from raincheck.server.tools.policy import ServedToolSettings, TaskPolicy, check_idempotency
from raincheck.server.tools.registry import ToolRegistry, check_settings
from raincheck.server.tools.task_session import SdkContextFactory
from raincheck.server.unix.server import UnixListener, serve_until_signal
from raincheck.server.wait_policy import WaitPolicy
from raincheck.wire.fallback_text import FallbackTools


class TasksOptions(TypedDict, total=False):
    """Options of `Tasks`, besides the store and its namespace. `Tasks` documents them."""

    settings: Settings | None
    works: bool
    owner: OwnerFunction | None
    anonymous: Anonymous
    fallback_wait: float | None
    fallback_tools: FallbackTools | None
    clock: Clock | None


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


F = TypeVar("F", bound=Callable[..., Any])

UNNAMED = "mcp-server"
"""The SDK's name for a server without a name."""

TASKS_ATTRIBUTE = "raincheck_tasks"
"""The attribute of a server that holds its tasks."""


class Tasks:
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
        self._tool_list: DynamicToolList | None = None
        self._list_changed: ToolListChanges | None = None
        self._runtime = runtime = ServerRuntime(options, self._toolbox)
        owners = OwnerResolver(owner, anonymous, lambda: runtime.header_key)
        self._wait_policy = WaitPolicy(
            options.clock, lambda tool: runtime.engine.durations.histogram(tool), self._tools.expected
        )
        self._direct_calls = DirectCalls(runtime, owners, self._wait_policy)
        attach(lowlevel, runtime, owners, self._wait_policy, self._tools, self._sdk_contexts)
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
        return self._decorate(fn, name, options, SdkToolOptions.__annotations__.keys())

    def _decorate(self, fn: Any, name: str | None, options: Mapping[str, Any], listed: Set[str]) -> Any:  # noqa: ANN401 - as `tool` has them
        """Return what `tool` returns. `listed` names the options with which the server lists a tool."""
        listing = {key: value for key, value in options.items() if key in listed}
        settings = cast("ServedToolSettings", {key: value for key, value in options.items() if key not in listed})
        check_settings(name or getattr(fn, "__name__", None), settings)

        def decorate(fn: F) -> F:
            self._serve_function(fn, name, listing, settings)
            return fn

        return decorate if fn is None else decorate(fn)

    def _serve_function(
        self, fn: AnyFunction, name: str | None, listing: dict[str, Any], settings: ServedToolSettings
    ) -> None:
        if self._server is None:
            raise ConfigurationError(
                "a low-level server defines its tools in its own handlers: serve this tool there, "
                "and pass its name to enable()"
            )
        function = ServedFunction(fn, name_of(fn, name), self._sdk_contexts, **listing)
        self._tools.add(function, settings)
        direct_call = self._direct_calls.function_for(function.sdk)
        called = function.stand_in(direct_call, *request_parameter(function.sdk))
        self._server.add_tool(called, name=function.name, **listing)
        self._tools.link_sdk_tool(function.name)

    def enable(self, pattern: str, /, **settings: Unpack[ServedToolSettings]) -> None:
        """Run tools that other code registered as tasks: one by its name, or all that match a pattern.

        Raises:
            ConfigurationError: they can't run as tasks.
        """
        self._tools.enabled.check(pattern, settings, allow_patterns=self._server is not None)
        check_settings(pattern, settings)
        self._tools.enabled.add(pattern, settings)

    def add(self, tool: TaskTool, *, input_schema: Mapping[str, Json], **options: Unpack[DynamicToolOptions]) -> None:
        """Serve a tool that declares its arguments in a JSON Schema, which is listed unchanged.

        Arguments are validated against the schema before there is a task. The body returns JSON, which is the result.

        Raises:
            ConfigurationError: the tool can't be served like that, or its name is taken.
        """
        self._tools.check_free(tool.name)
        self._add_dynamic(tool, input_schema, options)

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
        self._add_dynamic(tool, input_schema, options)

    def remove(self, name: str) -> None:
        """Stop serving a tool that was added. It vanishes from the list, and its running and waiting tasks continue.

        Raises:
            ConfigurationError: no tool of this name was added.
        """
        self._tools.remove(name)
        if self._server is not None:
            self._server.remove_tool(name)

    async def notify_list_changed(self) -> None:
        """Notify callers that the tools have changed. Call it once, after adding, replacing or removing tools."""
        if self._list_changed is not None:
            await self._list_changed.notify()

    def _add_dynamic(self, tool: TaskTool, input_schema: Mapping[str, Json], options: DynamicToolOptions) -> None:
        schema = InputSchema(tool.name, input_schema)
        policy = options.get("policy") or TaskPolicy()
        check_idempotency(tool.name, policy.idempotency, schema.names)
        served = as_served(tool, schema)
        self._list_changed = self._list_changed or ToolListChanges(self._server, self._lowlevel)
        sdk = self._register_sdk_tool(tool.name, options)
        # Otherwise it would be the docstring of the stand-in function.
        sdk.description = options.get("description") or ""
        sdk.parameters, sdk.context_kwarg = schema.listed, REQUEST_PARAMETER
        sdk.fn_metadata = SchemaFuncMetadata(arg_model=ArgModelBase, input_schema=schema)
        sdk.fn = self._direct_calls.function_for(sdk)
        self._tools.add_dynamic(served, policy, sdk)

    def set_tool_rebuilder(self, rebuild: Callable[[bytes], tuple[TaskTool, Mapping[str, Json]]]) -> None:
        """Set the function that makes a missing tool and its schema from its definition, so that its tasks continue."""

        def served(definition: bytes) -> TaskTool:
            tool, schema = rebuild(definition)
            return as_served(tool, InputSchema(tool.name, schema))

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
