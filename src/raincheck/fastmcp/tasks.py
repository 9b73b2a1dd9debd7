"""Attach durable tasks to a FastMCP server."""

from collections.abc import Callable
from os import PathLike
from typing import Any, NoReturn, TypeVar, Unpack, cast, overload

from fastmcp.tools import Tool
from fastmcp.utilities.authorization import AuthCheck
from fastmcp.utilities.types import NotSetT
from mcp.server.mcpserver import Icon
from mcp_types import CallToolRequestParams, PaginatedRequestParams, ToolAnnotations

from raincheck.errors import ConfigurationError
from raincheck.fastmcp.adapter import FastMCPFunction, ServerAdapter, has_name, lowlevel_of
from raincheck.fastmcp.calls import CallInterceptor, handler_of
from raincheck.fastmcp.tools import AnyFastMCP, expose_output_properties
from raincheck.server.tasks import TASKS_ATTRIBUTE, TasksOptions
from raincheck.server.tasks import Tasks as ServerTasks
from raincheck.server.tools.dynamic_tools import DynamicToolOptions
from raincheck.server.tools.functions import AnyFunction, name_of
from raincheck.server.tools.policy import ServedToolSettings

F = TypeVar("F", bound=Callable[..., Any])


class FastMCPToolOptions(ServedToolSettings, total=False):
    """Options of FastMCP's own `tool`, and settings of its tasks."""

    title: str | None
    description: str | None
    tags: set[str] | None
    annotations: ToolAnnotations | None
    icons: list[Icon] | None
    meta: dict[str, Any] | None
    output_schema: dict[str, Any] | NotSetT | None
    auth: AuthCheck | list[AuthCheck] | None


LISTED = FastMCPToolOptions.__annotations__.keys() - ServedToolSettings.__annotations__.keys()
"""The names of the options with which FastMCP lists a tool."""


class Tasks(ServerTasks):
    """Durable tasks for a FastMCP server.

        mcp = FastMCP("reports")
        tasks = Tasks(mcp, "tasks.db")

        @tasks.tool(inline_for=2)
        async def build_report(year: int, task: TaskContext) -> Report: ...

    It accepts the options of `raincheck.Tasks`, and does the same. Attach it to the server that you run, not to one
    that is mounted there. Tools with FastMCP's own `task=True` become tasks automatically.

    Raises:
        ConfigurationError: tasks can't be attached to this server like that.
    """

    def __init__(
        self,
        server: AnyFastMCP,
        store: str | PathLike[str] | None = None,
        *,
        namespace: str | None = None,
        **options: Unpack[TasksOptions],
    ) -> None:
        lowlevel = lowlevel_of(server)
        if namespace is None and not has_name(server):
            raise ConfigurationError(
                "tasks are stored under their server's name, so that other servers on the same store don't run them: "
                'name the server, as in FastMCP("reports"), or give a namespace'
            )
        self._adapter = ServerAdapter(server)
        self._interceptor = interceptor = CallInterceptor(lowlevel, self._adapter)
        try:
            server.add_extension(interceptor)
        except ValueError as error:
            raise ConfigurationError(
                f"server {server.name!r} has tasks already: attach them once, and remove FastMCP's TasksExtension"
            ) from error
        lowlevel.middleware.append(expose_output_properties)
        lowlevel.add_request_handler("tools/call", CallToolRequestParams, interceptor.call_original)
        try:
            super().__init__(self._adapter, store, namespace=namespace, **options)
            task_handler = handler_of(lowlevel, "tools/call")
        finally:
            lowlevel.add_request_handler("tools/call", CallToolRequestParams, interceptor.original_call)
        names = () if self.options.fallback_wait is None else self.options.fallback_tools
        interceptor.set_handlers(task_handler, self._direct_calls, frozenset(names))
        lowlevel.add_request_handler("tools/call", CallToolRequestParams, interceptor.call)
        lowlevel.add_request_handler("tools/list", PaginatedRequestParams, interceptor.list)
        self._adapter.catalog.on_new = self._enable_declared

    @staticmethod
    def of(server: Any) -> "Tasks | None":  # noqa: ANN401 - any server
        """Return the tasks that are attached to a server, or None."""
        return cast("Tasks | None", vars(lowlevel_of(server)).get(TASKS_ATTRIBUTE))

    @overload
    def tool(self, fn: F, /) -> F: ...

    @overload
    def tool(self, /, *, name: str | None = None, **options: Unpack[FastMCPToolOptions]) -> Callable[[F], F]: ...

    def tool(  # pyright: ignore[reportIncompatibleMethodOverride] - FastMCP's tools have other options
        self, fn: Any = None, /, *, name: str | None = None, **options: Unpack[FastMCPToolOptions]
    ) -> Any:
        """Register a function as a tool whose calls become tasks. The function itself is unchanged.

        It accepts the options of FastMCP's own `tool`, except `version`, `timeout` (the task has its own) and FastMCP's
        own options of tasks. `TaskPolicy` and `TaskTool` document the other settings. A parameter of type `TaskContext`
        (in a plain function: `SyncTaskContext`) receives the task, and is not one of the arguments.

        Raises:
            ConfigurationError: the function can't be served like that.
        """
        return self._decorate(fn, name, options, LISTED)

    def _serve_function(
        self, fn: AnyFunction, name: str | None, listing: dict[str, Any], settings: ServedToolSettings
    ) -> None:
        function = FastMCPFunction(fn, name_of(fn, name), self._adapter, self._sdk_contexts, **listing)
        self._tools.add(function, settings)
        self._interceptor.task_only_tools.add(function.name)
        try:
            self._adapter.server.add_tool(function.tool)
        except ValueError as error:
            raise ConfigurationError(f"tool {function.name!r} can't be added: {error}") from error
        self._adapter.catalog.record(function.tool)
        self._tools.link_sdk_tool(function.name)

    def _register_sdk_tool(self, name: str, options: DynamicToolOptions) -> NoReturn:
        del options
        raise ConfigurationError(
            f"tool {name!r} is a TaskTool, but a FastMCP tool is a function: add that to the server, and enable it here"
        )

    def _enable_declared(self, tool: Tool) -> None:
        """Enable a tool that FastMCP's own decorator declares as a task, unless it is configured here."""
        config, enabled = tool.task_config, self._tools.enabled
        if config.supports_tasks() and enabled.find(tool.name) is None:
            enabled.add(tool.name, {"mode": "required" if config.mode == "required" else "auto"})
