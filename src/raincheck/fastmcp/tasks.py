"""Tasks for a server of FastMCP: the one thing that its author attaches."""

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
from raincheck.fastmcp.adapter import Face, FastFunction
from raincheck.fastmcp.body import AnyFastMCP, OwnCalls, has_name, lowlevel_of
from raincheck.fastmcp.calls import CallSeam
from raincheck.fastmcp.tools import keep_shapes
from raincheck.server.identity import Anonymous, OwnerFunction
from raincheck.server.runtime import PLAIN_WAIT
from raincheck.server.tasks import ATTACHED, ReadyOptions
from raincheck.server.tasks import Tasks as ServerTasks
from raincheck.server.tools.functions import name_of
from raincheck.server.tools.policy import ServedSettings
from raincheck.server.tools.registry import check_settings
from raincheck.wire.fallback_tools import PlainTools

F = TypeVar("F", bound=Callable[..., Any])


class Tasks(ServerTasks):
    """Durable tasks for a FastMCP server.

        mcp = FastMCP("reports")
        tasks = Tasks(mcp, "tasks.db")

        @tasks.tool(inline_for=2)
        async def build_report(year: int, task: TaskContext) -> Report: ...

    It takes what `raincheck.Tasks` takes, and does the same. Attach it to the server that you run, and not to one that
    is mounted there. Tools with FastMCP's own `task=True` become tasks by themselves.

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
        plain_wait: float | None = PLAIN_WAIT,
        plain_tools: PlainTools | None = None,
        clock: Clock | None = None,
    ) -> None:
        lowlevel = lowlevel_of(server)
        if namespace is None and not has_name(server):
            raise ConfigurationError(
                "tasks are kept under their server's name, so that others on the same store don't run them: "
                'name the server, as in FastMCP("reports"), or give a namespace'
            )
        self._face = face = Face(server)
        seam = CallSeam(lowlevel, face)
        try:
            server.add_extension(seam)
        except ValueError as error:
            raise ConfigurationError(
                f"server {server.name!r} has tasks already: attach them once, and leave out FastMCP's TasksExtension"
            ) from error
        lowlevel.middleware.append(keep_shapes)
        theirs = lowlevel.get_request_handler("tools/call")
        lowlevel.add_request_handler("tools/call", CallToolRequestParams, seam.inside)
        try:
            super().__init__(
                face,
                store,
                namespace=namespace,
                settings=settings,
                works=works,
                owner=owner,
                anonymous=anonymous,
                plain_wait=plain_wait,
                plain_tools=plain_tools,
                clock=clock,
            )
        finally:
            ours = lowlevel.get_request_handler("tools/call")
            if theirs is not None:
                lowlevel.add_request_handler("tools/call", CallToolRequestParams, theirs.handler)
        assert ours is not None  # noqa: S101 - just attached
        self._own_calls = OwnCalls(self._running)
        telling = self._running.telling
        seam.serve_with(ours.handler, self._own_calls, frozenset(() if telling is None else telling.tools))
        lowlevel.add_request_handler("tools/call", CallToolRequestParams, seam.call)
        lowlevel.add_request_handler("tools/list", PaginatedRequestParams, seam.list)
        face.catalogue.on_new = self._heed

    @staticmethod
    def of(server: Any) -> "Tasks | None":  # noqa: ANN401 - a FastMCP server, or what it is built on
        """The tasks that are attached to a server, if there are any."""
        return cast("Tasks | None", vars(lowlevel_of(server)).get(ATTACHED))

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
        **settings: Unpack[ServedSettings],
    ) -> Callable[[F], F]: ...

    def tool(  # pyright: ignore[reportIncompatibleMethodOverride] - FastMCP says other things of a tool than the SDK
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
        **settings: Unpack[ServedSettings],
    ) -> Any:
        """Make a function a tool whose calls become tasks. The function itself stays as it is.

        It takes what FastMCP's own `tool` takes, but for `version` and `timeout`, which are the task's, and what is
        FastMCP's own of tasks; `TaskPolicy` and `TaskTool` say what can be set besides. A parameter that is a
        `TaskContext` (in a plain function: a `SyncTaskContext`) is the task, and not among the arguments.

        Raises:
            ConfigurationError: it can't work like that.
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
            function = FastFunction(fn, name_of(fn, name), self._face, self._workplace, **listed)
            self._tools.add(function, settings)
            self._own_calls.names.add(function.name)
            try:
                self._face.server.add_tool(function.tool)
            except ValueError as error:
                raise ConfigurationError(f"tool {function.name!r} can't be added: {error}") from error
            self._face.catalogue.note(function.tool)
            self._tools.take_listed(function.name)
            return fn

        return decorate if fn is None else decorate(fn)

    def _list(self, name: str, options: ReadyOptions) -> NoReturn:
        del options
        raise ConfigurationError(
            f"tool {name!r} is ready to run, and FastMCP's are functions: add one to the server, and enable it here"
        )

    def _heed(self, tool: Tool) -> None:
        """What FastMCP's own decorator said of tasks holds, unless something was said here."""
        config, enabled = tool.task_config, self._tools.enabled
        if config.supports_tasks() and enabled.find(tool.name) is None:
            enabled.add(tool.name, {"mode": "required" if config.mode == "required" else "auto"})
