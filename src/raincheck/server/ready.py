"""Tools that are ready to run, and that come and go while a server runs: such as those that a file defines."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypedDict, Unpack

from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.tools import Tool as SdkTool
from mcp_types import ToolAnnotations

from raincheck.core.payload import Json
from raincheck.engine import Toolbox
from raincheck.engine.tools import TaskTool
from raincheck.errors import ConfigurationError
from raincheck.server.own_calls import caller_of
from raincheck.server.policy import TaskPolicy
from raincheck.server.ready_listing import ReadyListing
from raincheck.server.running import Running
from raincheck.server.schema_tools import InputSchema, accepting, body_of, list_by_schema, stand_in, value_in
from raincheck.server.sdk import tool_of
from raincheck.server.served import ServedTools
from raincheck.server.tool_changes import ToolChanges


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
