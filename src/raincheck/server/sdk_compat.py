"""Adapt the `mcp` SDK: the private names that raincheck needs, and filters for its log records about connections.

The private names of an `MCPServer` are checked when tasks are attached, so that an SDK that has moved them is noticed
there, with a clear message, and not at the first call. The names of a session exist only during a request. Tests cover
those, and the way the SDK composes call handlers, which is recognized by the module of the composed handler.

The filters log connection problems as one line without a traceback, whatever handlers the application has.
Rendering a traceback can block the event loop for as long as a hundred requests take. The handlers belong to the
application, so filters on the loggers drop such a record before any handler receives it, and log a line in its place.

- A client that disconnects while it sends a request is not a server error. The SDK (`mcp` 2.3) and uvicorn log an
  error. Remove this filter when the SDK answers a `ClientDisconnect` itself: `test_transport_log.py` fails then.
- Without a free file descriptor, asyncio logs an error for each connection that it can't accept, two thousand at once
  in Python 3.11. The handler of rich, which the SDK installs, needs a descriptor to render the first, and its own error
  ended the process. Remove this filter when the SDK installs another handler.
"""

import errno
import logging
import time
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
from starlette.requests import ClientDisconnect

from raincheck.core.owner import Owner
from raincheck.errors import ConfigurationError

AnyServer: TypeAlias = MCPServer[Any] | Server[Any]
AnyContext: TypeAlias = ServerRequestContext[Any, Any]
Handler: TypeAlias = RequestHandler

OWNER = "raincheck/owner"
"""Key in a connection's state for the owner of the connection."""

PRIVATE = ("_extensions", "_handle_call_tool", "_lowlevel_server", "_subscriptions", "_tool_manager")


def lowlevel_of(server: AnyServer) -> Server[Any]:
    """Return the low-level server, which holds the lifespan and the methods. An `MCPServer` keeps it private.

    Raises:
        ConfigurationError: `server` is neither kind of server, or belongs to another SDK.
    """
    if isinstance(server, Server):
        return server
    if not isinstance(server, MCPServer):  # pyright: ignore[reportUnnecessaryIsInstance] - not every caller is type-checked
        is_fastmcp = any(kind.__module__.partition(".")[0] == "fastmcp" for kind in type(server).__mro__)
        hint = ": for a FastMCP server, import Tasks from raincheck.fastmcp" if is_fastmcp else ""
        raise ConfigurationError(
            f"tasks are attached to an MCPServer or a low-level Server of the `mcp` SDK 2.x, not to {server!r}{hint}"
        )
    missing = [name for name in PRIVATE if not hasattr(server, name)]
    missing += [name for name in ("_notify",) if not hasattr(ServerSession, name)]
    if missing:
        raise ConfigurationError(
            f"this version of the `mcp` SDK has no MCPServer.{missing[0]}: install one that raincheck supports"
        )
    return cast("Server[Any]", getattr(server, "_lowlevel_server"))  # noqa: B009 - it has no public name


def split_call_handler(
    server: MCPServer[Any] | None, registered: Handler
) -> tuple[Callable[[Handler], Handler], Handler]:
    """Split what serves `tools/call` into the wrapper of other extensions and the handler inside.

    A handler that the application registered itself has no wrapper, and is returned unchanged.
    """
    extensions = cast("list[Extension]", getattr(server, "_extensions", []))
    inside = cast("Handler | None", getattr(server, "_handle_call_tool", None))
    is_composed = getattr(registered, "__module__", None) == compose_tool_call_handler.__module__
    if inside is None or not is_composed:
        return (lambda handler: handler), registered
    return (lambda handler: compose_tool_call_handler(extensions, handler)), inside


def tool_of(server: MCPServer[Any] | None, name: str) -> SdkTool | None:
    """Return the SDK's tool of that name, with the metadata that reads its arguments and its resolvers."""
    manager = getattr(server, "_tool_manager", None)
    return cast("SdkTool | None", manager.get_tool(name)) if manager is not None else None


def request_of(context: Context[Any, Any]) -> AnyContext | None:
    """Return the request that a context belongs to, or None."""
    return cast("AnyContext | None", getattr(context, "_request_context", None))


def bus_of(server: MCPServer[Any]) -> SubscriptionBus | None:
    """Return the bus on which tools publish changes. Task bodies that run later publish there too."""
    return cast("SubscriptionBus | None", getattr(server, "_subscriptions", None))


def connection_of(ctx: AnyContext) -> Connection:
    """Return the connection of a request, which a session keeps private."""
    return cast("Connection", getattr(ctx.session, "_connection"))  # noqa: B009 - it has no public name


def _outbound_of(ctx: AnyContext) -> Outbound:
    """Return the stream of a request, which a session keeps private too."""
    return cast("Outbound", getattr(ctx.session, "_request_outbound"))  # noqa: B009 - likewise


def is_closing(ctx: AnyContext) -> bool:
    """Return whether the connection of a request is closed or closing."""
    return bool(getattr(connection_of(ctx).outbound, "_closed", False))


def is_answered(ctx: AnyContext) -> bool:
    """Return whether a request has been answered: nothing more is sent on its stream."""
    return bool(getattr(_outbound_of(ctx), "_closed", True))


def stream_of(ctx: AnyContext) -> Outbound | None:
    """Return the stream for notifications before the answer to a request; None if the answer is sent alone, as JSON."""
    if ctx.session.can_send_request or not connection_of(ctx).has_standalone_channel:
        return _outbound_of(ctx)
    return None


def channel_of(ctx: AnyContext, *, may_use_connection: bool) -> Outbound | None:
    """Return the channel that reaches the caller: the request's own stream, or else the connection's.

    None if there is no channel: each request of a caller without a session stands alone.
    """
    if ctx.session.can_send_request:
        return _outbound_of(ctx)
    connection = connection_of(ctx)
    return connection if may_use_connection and connection.has_standalone_channel else None


def is_owned_by(connection: Connection, owner: Owner) -> bool:
    """Return whether a connection belongs to this owner. A connection shared by several belongs to the first.

    It is unknown which of them reads the connection's own stream.
    """
    return connection.state.setdefault(OWNER, owner.key) == owner.key


def fields_of(result: HandlerResult) -> dict[str, Any]:
    """Return a result as the fields to send, whether middleware returned a model, a mapping or None."""
    if isinstance(result, BaseModel):
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return {} if result is None else result


DISCONNECT_LOGGERS = ("mcp.server.streamable_http", "uvicorn.error")
"""The loggers of the 2025-11-25 transport, and of the HTTP server, which receives the error in 2026-07-28."""

ACCEPT_LOGGER = "asyncio"

OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
"""Errors after which asyncio retries to accept connections, one second later."""

REPORT_INTERVAL = 10.0
"""Minimum number of seconds between two warnings about connections that can't be accepted."""

logger = logging.getLogger(__name__)


def install_filters() -> None:
    """Install the log filters. Further calls change nothing."""
    for name in DISCONNECT_LOGGERS:
        logging.getLogger(name).addFilter(_replace_disconnect)
    asyncio_logger = logging.getLogger(ACCEPT_LOGGER)
    if not any(isinstance(installed, _AcceptErrors) for installed in asyncio_logger.filters):
        asyncio_logger.addFilter(_AcceptErrors())


def _replace_disconnect(record: logging.LogRecord) -> bool:
    if not record.exc_info or not isinstance(record.exc_info[1], ClientDisconnect):
        return True
    logger.debug("a client disconnected before it had sent its whole request")
    return False


class _AcceptErrors(logging.Filter):
    """Log filter that replaces accept errors with an occasional warning."""

    def __init__(self) -> None:
        super().__init__()
        self._reported_at: float | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        is_accept_error = isinstance(error, OSError) and error.errno in OUT_OF_RESOURCES
        if not is_accept_error or not record.getMessage().startswith("socket.accept()"):
            return True
        now = time.monotonic()
        if self._reported_at is None or now >= self._reported_at + REPORT_INTERVAL:
            self._reported_at = now
            logger.warning("new connections have to wait: %s. Limit them in a proxy, or raise `ulimit -n`", error)
        return False
