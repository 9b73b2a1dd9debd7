"""Attach durable tasks to a FastMCP server."""

from collections.abc import Callable
from os import PathLike
from typing import Any, NoReturn, TypeVar, Unpack, cast, overload

from fastmcp.tools import Tool
from fastmcp.utilities.authorization import AuthCheck
from fastmcp.utilities.types import NotSet, NotSetT
from mcp.server.mcpserver import Icon
from mcp_types import CallToolRequestParams, PaginatedRequestParams, ToolAnnotations

from raincheck.clock import Clock
from raincheck.engine import Settings
from raincheck.errors import ConfigurationError
from raincheck.fastmcp.adapter import FastMCPFunction, ServerAdapter
from raincheck.fastmcp.body import AnyFastMCP, DirectCalls, has_name, lowlevel_of
from raincheck.fastmcp.calls import CallInterceptor
from raincheck.fastmcp.tools import expose_output_properties
from raincheck.server.identity import Anonymous, OwnerFunction
from raincheck.server.runtime import FALLBACK_WAIT
from raincheck.server.tasks import TASKS_ATTRIBUTE, DynamicToolOptions
from raincheck.server.tasks import Tasks as ServerTasks
from raincheck.server.tools.functions import name_of
from raincheck.server.tools.policy import ServedToolSettings
from raincheck.server.tools.registry import check_settings
from raincheck.wire.fallback_tools import FallbackTools

F = TypeVar("F", bound=Callable[..., Any])


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
        settings: Settings | None = None,
        works: bool = True,
        owner: OwnerFunction | None = None,
        anonymous: Anonymous = "id",
        fallback_wait: float | None = FALLBACK_WAIT,
        fallback_tools: FallbackTools | None = None,
        clock: Clock | None = None,
    ) -> None:
        lowlevel = lowlevel_of(server)
        if namespace is None and not has_name(server):
            raise ConfigurationError(
                "tasks are stored under their server's name, so that other servers on the same store don't run them: "
                'name the server, as in FastMCP("reports"), or give a namespace'
            )
        self._adapter = ServerAdapter(server)
        interceptor = CallInterceptor(lowlevel, self._adapter)
        try:
            server.add_extension(interceptor)
        except ValueError as error:
            raise ConfigurationError(
                f"server {server.name!r} has tasks already: attach them once, and remove FastMCP's TasksExtension"
            ) from error
        lowlevel.middleware.append(expose_output_properties)
        original_handler = lowlevel.get_request_handler("tools/call")
        lowlevel.add_request_handler("tools/call", CallToolRequestParams, interceptor.call_original)
        try:
            super().__init__(
                self._adapter,
                store,
                namespace=namespace,
                settings=settings,
                works=works,
                owner=owner,
                anonymous=anonymous,
                fallback_wait=fallback_wait,
                fallback_tools=fallback_tools,
                clock=clock,
            )
        finally:
            task_handler = lowlevel.get_request_handler("tools/call")
            if original_handler is not None:
                lowlevel.add_request_handler("tools/call", CallToolRequestParams, original_handler.handler)
        assert task_handler is not None  # noqa: S101 - just attached
        self._direct_calls = DirectCalls(self._runtime)
        messages = self._runtime.fallback_messages
        interceptor.set_handlers(
            task_handler.handler, self._direct_calls, frozenset(() if messages is None else messages.tools)
        )
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
    def tool(
        self,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        tags: set[str] | None = None,
        annotations: ToolAnnotations | None = None,
        icons: list[Icon] | None = None,
        meta: dict[str, Any] | None = None,
        output_schema: dict[str, Any] | NotSetT | None = NotSet,
        auth: AuthCheck | list[AuthCheck] | None = None,
        **settings: Unpack[ServedToolSettings],
    ) -> Callable[[F], F]: ...

    def tool(  # pyright: ignore[reportIncompatibleMethodOverride] - FastMCP's tools have other options
        self,
        fn: Any = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        tags: set[str] | None = None,
        annotations: ToolAnnotations | None = None,
        icons: list[Icon] | None = None,
        meta: dict[str, Any] | None = None,
        output_schema: dict[str, Any] | NotSetT | None = NotSet,
        auth: AuthCheck | list[AuthCheck] | None = None,
        **settings: Unpack[ServedToolSettings],
    ) -> Any:
        """Register a function as a tool whose calls become tasks. The function itself is unchanged.

        It accepts the options of FastMCP's own `tool`, except `version`, `timeout` (the task has its own) and FastMCP's
        own options of tasks. `TaskPolicy` and `TaskTool` document the other settings. A parameter of type `TaskContext`
        (in a plain function: `SyncTaskContext`) receives the task, and is not one of the arguments.

        Raises:
            ConfigurationError: the function can't be served like that.
        """
        check_settings(name or getattr(fn, "__name__", None), settings)
        listed = {
            "title": title,
            "description": description,
            "tags": tags,
            "annotations": annotations,
            "icons": icons,
            "meta": meta,
            "output_schema": output_schema,
            "auth": auth,
        }

        def decorate(fn: F) -> F:
            function = FastMCPFunction(fn, name_of(fn, name), self._adapter, self._sdk_contexts, **listed)
            self._tools.add(function, settings)
            self._direct_calls.tool_names.add(function.name)
            try:
                self._adapter.server.add_tool(function.tool)
            except ValueError as error:
                raise ConfigurationError(f"tool {function.name!r} can't be added: {error}") from error
            self._adapter.catalog.record(function.tool)
            self._tools.link_sdk_tool(function.name)
            return fn

        return decorate if fn is None else decorate(fn)

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
