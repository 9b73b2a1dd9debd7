"""What we need of the SDK and what it has no public name for, in one place.

Those of an `MCPServer` are looked for when tasks are attached, so that an SDK that has moved them is noticed there,
with a message that says so, and not at the first call. Those of a session are there only with a request; they, and how
the SDK composes calls, which is told by where the result is from, are tested.
"""

from collections.abc import Callable
from typing import Any, TypeAlias, cast

from mcp.server.connection import Connection
from mcp.server.context import HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, RequestHandler, compose_tool_call_handler
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.tools import Tool as SdkTool
from mcp.server.session import ServerSession
from mcp.server.subscriptions import SubscriptionBus
from mcp.shared.dispatcher import Outbound
from pydantic import BaseModel

from raincheck.core.owner import Owner
from raincheck.errors import ConfigurationError

AnyServer: TypeAlias = MCPServer[Any] | Server[Any]
AnyContext: TypeAlias = ServerRequestContext[Any, Any]
Handler: TypeAlias = RequestHandler

OWNER = "raincheck/owner"
"""Where a connection keeps whose it is."""

PRIVATE = ("_extensions", "_handle_call_tool", "_lowlevel_server", "_subscriptions", "_tool_manager")


def lowlevel_of(server: AnyServer) -> Server[Any]:
    """The server that does the work: an `MCPServer` keeps its own to itself, and so its lifespan and its methods.

    Raises:
        ConfigurationError: it is neither, or of another SDK.
    """
    if isinstance(server, Server):
        return server
    if not isinstance(server, MCPServer):  # pyright: ignore[reportUnnecessaryIsInstance] - not every caller is type-checked
        is_fastmcp = any(kind.__module__.partition(".")[0] == "fastmcp" for kind in type(server).__mro__)
        instead = ": for one of FastMCP, import Tasks from raincheck.fastmcp" if is_fastmcp else ""
        raise ConfigurationError(
            f"tasks are attached to an MCPServer or a low-level Server of the `mcp` SDK 2.x, not to {server!r}{instead}"
        )
    missing = [name for name in PRIVATE if not hasattr(server, name)]
    missing += [name for name in ("_notify",) if not hasattr(ServerSession, name)]
    if missing:
        raise ConfigurationError(
            f"this version of the `mcp` SDK has no MCPServer.{missing[0]}: use another with raincheck"
        )
    return cast("Server[Any]", getattr(server, "_lowlevel_server"))  # noqa: B009 - it has no public name


def unwrap_calls(server: MCPServer[Any] | None, registered: Handler) -> tuple[Callable[[Handler], Handler], Handler]:
    """What serves `tools/call` in two parts: what other extensions put around it, and what is inside.

    A handler that somebody else registered is inside as it is.
    """
    extensions = cast("list[Extension]", getattr(server, "_extensions", []))
    inside = cast("Handler | None", getattr(server, "_handle_call_tool", None))
    is_composed = getattr(registered, "__module__", None) == compose_tool_call_handler.__module__
    if inside is None or not is_composed:
        return (lambda handler: handler), registered
    return (lambda handler: compose_tool_call_handler(extensions, handler)), inside


def tool_of(server: MCPServer[Any] | None, name: str) -> SdkTool | None:
    """A tool of the server as the SDK keeps it: how to read its arguments, and what to find out for it first."""
    manager = getattr(server, "_tool_manager", None)
    return cast("SdkTool | None", manager.get_tool(name)) if manager is not None else None


def request_of(context: Context[Any, Any]) -> AnyContext | None:
    """The request that a context belongs to, if it belongs to one."""
    return cast("AnyContext | None", getattr(context, "_request_context", None))


def bus_of(server: MCPServer[Any]) -> SubscriptionBus | None:
    """Where tools publish that something has changed. Bodies that run later publish there too."""
    return cast("SubscriptionBus | None", getattr(server, "_subscriptions", None))


def connection_of(ctx: AnyContext) -> Connection:
    """The connection that a request came on, which a session keeps to itself."""
    return cast("Connection", getattr(ctx.session, "_connection"))  # noqa: B009 - it has no public name


def _outbound_of(ctx: AnyContext) -> Outbound:
    """The stream of a request, which a session keeps to itself too."""
    return cast("Outbound", getattr(ctx.session, "_request_outbound"))  # noqa: B009 - likewise


def is_closing(ctx: AnyContext) -> bool:
    """Whether the connection of a request has been closed, or is being."""
    return bool(getattr(connection_of(ctx).outbound, "_closed", False))


def is_answered(ctx: AnyContext) -> bool:
    """Whether a request has been answered: nothing more goes out on its stream."""
    return bool(getattr(_outbound_of(ctx), "_closed", True))


def stream_of(ctx: AnyContext) -> Outbound | None:
    """Where notifications go out with the answer to a request; None if the answer goes out alone, as JSON."""
    if ctx.session.can_send_request or not connection_of(ctx).has_standalone_channel:
        return _outbound_of(ctx)
    return None


def channel_of(ctx: AnyContext, *, may_use_connection: bool) -> Outbound | None:
    """Where the caller of a request can be reached: on the request's own stream, or else on the connection's.

    None where it can't be: each request of a caller without a session stands alone.
    """
    if ctx.session.can_send_request:
        return _outbound_of(ctx)
    connection = connection_of(ctx)
    return connection if may_use_connection and connection.has_standalone_channel else None


def is_theirs(connection: Connection, owner: Owner) -> bool:
    """Whether a connection is this owner's: one that several share is the first one's.

    Of its own stream nobody knows who reads it.
    """
    return connection.state.setdefault(OWNER, owner.key) == owner.key


def fields_of(result: HandlerResult) -> dict[str, Any]:
    """A result as it goes out, whichever way somebody on the way put it."""
    if isinstance(result, BaseModel):
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return {} if result is None else result
