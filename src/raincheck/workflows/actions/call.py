"""Actions that call a tool of another MCP server."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from raincheck.core.values import Json
from raincheck.workflows.actions.base import Action, ActionCall, ActionFailed
from raincheck.workflows.definition import Problem
from raincheck.workflows.expressions.template import Scope, Template
from raincheck.workflows.parsing.models import ActionModel, CallModel
from raincheck.workflows.permissions import Permissions

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from raincheck.client import TaskClient


class CallAction(Action):
    """Call a tool of a server, however long it takes. The result is the structured content, or else the text."""

    template_keys = ("arguments",)

    def __init__(self, model: ActionModel, permissions: Permissions) -> None:
        super().__init__(model, permissions)
        # Imported here and not at the first call: the import is slow and would block the event loop.
        from raincheck.client import TaskClient
        from raincheck.client.connection import http_transport

        self._client_type, self._over_http = TaskClient, http_transport
        self._options = call = cast("CallModel", model.call)
        self._server = permissions.servers[call.server]
        self._headers = Template.parse(self._server.headers)
        self._arguments = Template.parse(call.arguments)
        self.label = f"call {call.tool} of {call.server}"

    @staticmethod
    def check(model: ActionModel, permissions: Permissions) -> Iterator[Problem]:
        server = cast("CallModel", model.call).server
        if server not in permissions.servers:
            declared = ", ".join(sorted(permissions.servers)) or "none"
            yield ("call", "server"), f"there is no server {server!r}: `servers` declares {declared}"

    async def perform(self, call: ActionCall) -> Json:
        scope = self.scope_with_env(call)
        arguments = cast("Mapping[str, Any]", self._arguments.render(scope))
        # After a crash the tool is called again. A server that accepts the key returns the task that it had started.
        key = f"{call.task.id}/{call.name}"
        try:
            async with self._client(scope) as client:
                result = await client.call_tool(self._options.tool, arguments, key=key)
        except Exception as error:
            raise ActionFailed("call", _error_message(error)) from error
        return _read(result)

    def _client(self, scope: Scope) -> "TaskClient":
        server = self._server
        if server.url is not None:
            headers = cast("dict[str, str]", self._headers.render(scope))
            return self._client_type(partial(self._over_http, server.url, headers), name=self._options.server)
        from mcp.client.stdio import StdioServerParameters

        command, *args = cast("list[str]", server.command)
        env, folder = self._permissions.command_environment(), self._permissions.folder
        stdio = StdioServerParameters(command=command, args=args, env=env, cwd=folder)
        return self._client_type(stdio, name=self._options.server)


def _error_message(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return str(error) or type(error).__name__


def _read(result: "CallToolResult") -> Json:
    texts = [part.text for part in result.content if part.type == "text"]
    if result.is_error:
        raise ActionFailed("call", "\n".join(texts) or "the tool reported an error")
    if result.structured_content is not None:
        return cast("Json", result.structured_content)
    return "\n".join(texts)
