"""Where tasks are put into a server: its handlers, its capabilities, its lifespan. The one place that changes it."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeAlias

from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp_types import CallToolRequestParams, RequestParams, SubscriptionsListenRequestParams

from raincheck.errors import ConfigurationError
from raincheck.server.caller import by_generation, is_modern
from raincheck.server.fallback.tool_list import PlainListing, said_to_have
from raincheck.server.runtime import Running
from raincheck.server.sdk_compat import AnyContext, install_filters, unwrap_calls
from raincheck.server.shared_follower import Watching
from raincheck.server.tool_calls import ToolCalls
from raincheck.server.tools.registry import ServedTools
from raincheck.server.tools.task_session import Workplace
from raincheck.server.tools.tool_list import KeyListing
from raincheck.server.v2025.elicitation import Asking
from raincheck.server.v2025.methods import G1Methods
from raincheck.server.v2025.middleware import G1Middleware
from raincheck.server.v2025.notifications import Pushing
from raincheck.server.v2026.methods import METHOD, G2Methods, Listening
from raincheck.server.wait import Waiting
from raincheck.wire.v2026 import EXTENSION

Lifespan: TypeAlias = Callable[[Server[Any]], AbstractAsyncContextManager[Any]]


def attach(server: Server[Any], running: Running, tools: ServedTools, workplace: Workplace) -> None:
    """Let a server serve tasks.

    Raises:
        ConfigurationError: it does so already, or has no tools.
    """
    install_filters()
    if EXTENSION in server.extensions:
        raise ConfigurationError(f"server {server.name!r} has tasks already: attach them once")
    calls = server.get_request_handler("tools/call")
    if calls is None:
        raise ConfigurationError(f"server {server.name!r} serves no tools: give it on_call_tool first")
    # Inside what other extensions put around calls: they may refuse one before there is a task.
    around, tools.handler = unwrap_calls(workplace.server, calls.handler)
    watching = Watching(running)
    asking, pushing = Asking(running, watching), Pushing(running, watching)
    waiting = Waiting(running, watching, asking)
    tool_calls = ToolCalls(running, tools, workplace, waiting)
    server.add_request_handler("tools/call", CallToolRequestParams, around(tool_calls))
    g1, g2 = G1Methods(running, watching, asking, pushing), G2Methods(running)
    for method, handler in {
        "tasks/get": by_generation(v2025_handler=g1.get, v2026_handler=g2.get),
        "tasks/result": by_generation(v2025_handler=g1.result),
        "tasks/list": by_generation(v2025_handler=g1.list),
        "tasks/update": by_generation(v2026_handler=g2.update),
        "tasks/cancel": by_generation(v2025_handler=g1.cancel, v2026_handler=g2.cancel),
    }.items():
        server.add_request_handler(method, RequestParams, handler)
    server.middleware.append(ignore_task_field)
    server.middleware.append(KeyListing(running, tools))
    server.middleware.append(G1Middleware(running, tools, pushing))
    if running.telling is not None:
        server.middleware.append(PlainListing(server, running, tools, running.telling))
    _listen(server, Listening(running))
    server.extensions[EXTENSION] = {}
    server.lifespan = _around(server.lifespan, running, tools, workplace)


def _listen(server: Server[Any], listening: Listening) -> None:
    """Stand before the server's own handler of streams, behind all middleware.

    A server that has none is asked in middleware instead: with a handler, it would claim to serve other streams too.
    """
    theirs = server.get_request_handler(METHOD)
    if theirs is None:
        server.middleware.append(listening)
        return

    async def listen(ctx: AnyContext, params: SubscriptionsListenRequestParams) -> HandlerResult:
        return await listening(ctx, lambda ctx: theirs.handler(ctx, params))

    server.add_request_handler(METHOD, SubscriptionsListenRequestParams, listen)


async def ignore_task_field(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
    """With this version the server alone decides on a task: what older callers ask for is not even looked at."""
    if ctx.method == "tools/call" and is_modern(ctx) and ctx.params is not None and "task" in ctx.params:
        ctx = replace(ctx, params={name: value for name, value in ctx.params.items() if name != "task"})
    return await call_next(ctx)


def _prepare(server: Server[Any], running: Running, tools: ServedTools, names: list[str]) -> None:
    tools.find_all(names)
    if running.telling is not None and tools.has_any("auto"):
        ours = running.telling.tools
        # A low-level server has no list at its start. Some say which tools they have all the same.
        ours.check_free((*names, *tools.enabled.names, *said_to_have(server, ours)))


def _around(theirs: Lifespan, running: Running, tools: ServedTools, workplace: Workplace) -> Lifespan:
    """The server's own lifespan, with the engine inside: bodies find what that made."""

    @asynccontextmanager
    async def lifespan(server: Server[Any]) -> AsyncGenerator[Any]:
        async with theirs(server) as state:
            # By a mark of its own: several may have been given the same.
            mark = object()
            workplace.states[mark] = state
            try:
                listed = [] if workplace.server is None else await workplace.server.list_tools()
                async with running.entered(lambda: _prepare(server, running, tools, [tool.name for tool in listed])):
                    yield state
            finally:
                del workplace.states[mark]

    return lifespan
