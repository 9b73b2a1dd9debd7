"""Steps that call a tool of another MCP server."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from raincheck.core.payload import Json
from raincheck.workflows.actions.base import ActionFailed, Occasion
from raincheck.workflows.actions.run import inherited
from raincheck.workflows.expressions.template import Scope, Template
from raincheck.workflows.parsing.models import CallModel, ServerModel
from raincheck.workflows.permissions import Surroundings

if TYPE_CHECKING:
    from mcp_types import CallToolResult

    from raincheck.client import TaskClient


class Call:
    """A tool of a server, however long it takes. Its result is the structured content, or else the text."""

    waits = False

    def __init__(self, model: CallModel, surroundings: Surroundings) -> None:
        # Here and not at the first call, since it takes a while and the event loop should not wait for it.
        from raincheck.client import TaskClient
        from raincheck.client.transport_errors import over_http

        self._client_type, self._over_http = TaskClient, over_http
        self._model = model
        self._surroundings = surroundings
        self._server = surroundings.servers[model.server]
        self._headers = Template.parse(self._server.headers)
        self._arguments = Template.parse(model.arguments)
        self.words = f"call {model.tool} of {model.server}"

    async def perform(self, occasion: Occasion) -> Json:
        scope = occasion.within(self._surroundings.variables())
        arguments = cast("Mapping[str, Any]", self._arguments.render(scope))
        # After a crash it is called again. A server that takes the key goes on with what it has begun then.
        key = f"{occasion.task.id}/{occasion.name}"
        try:
            async with self._client(scope) as client:
                result = await client.call_tool(self._model.tool, arguments, key=key)
        except Exception as error:
            raise ActionFailed("call", _words(error)) from error
        return _read(result)

    def _client(self, scope: Scope) -> "TaskClient":
        server = self._server
        if server.url is not None:
            headers = cast("dict[str, str]", self._headers.render(scope))
            url = server.url
            return self._client_type(lambda: self._over_http(url, headers), name=self._model.server)
        return self._client_type(self._stdio(server), name=self._model.server)

    def _stdio(self, server: ServerModel) -> Any:  # noqa: ANN401 - a type of the SDK
        from mcp.client.stdio import StdioServerParameters

        command = cast("list[str]", server.command)
        env = {**inherited(), **self._surroundings.variables()}
        return StdioServerParameters(command=command[0], args=command[1:], env=env, cwd=self._surroundings.folder)


def _words(error: BaseException) -> str:
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
