"""Attach tasks to a server: its handlers, capabilities and lifespan. Only this module changes a server."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeAlias

from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp_types import CallToolRequestParams, RequestParams, SubscriptionsListenRequestParams

from raincheck.errors import ConfigurationError
from raincheck.server.caller import by_generation, is_modern
from raincheck.server.fallback.tool_list import FallbackToolList, declared_tool_names
from raincheck.server.runtime import ServerRuntime
from raincheck.server.sdk_compat import AnyContext, install_filters, split_call_handler
from raincheck.server.shared_follower import SharedFollower
from raincheck.server.tool_calls import ToolCalls
from raincheck.server.tools.registry import ToolRegistry
from raincheck.server.tools.task_session import SdkContextFactory
from raincheck.server.tools.tool_list import IdempotencyHints
from raincheck.server.v2025.elicitation import ElicitationBroker
from raincheck.server.v2025.methods import V2025Methods
from raincheck.server.v2025.middleware import V2025Middleware
from raincheck.server.v2025.notifications import StatusNotifier
from raincheck.server.v2026.methods import LISTEN_METHOD, SubscriptionHandler, V2026Methods
from raincheck.server.wait import CallWaiter
from raincheck.wire.v2026 import EXTENSION

Lifespan: TypeAlias = Callable[[Server[Any]], AbstractAsyncContextManager[Any]]


def attach(server: Server[Any], runtime: ServerRuntime, tools: ToolRegistry, sdk_contexts: SdkContextFactory) -> None:
    """Attach tasks to a server.

    Raises:
        ConfigurationError: the server has tasks already, or has no tools.
    """
    install_filters()
    if EXTENSION in server.extensions:
        raise ConfigurationError(f"server {server.name!r} has tasks already: attach them once")
    calls = server.get_request_handler("tools/call")
    if calls is None:
        raise ConfigurationError(f"server {server.name!r} serves no tools: give it on_call_tool first")
    # Inside the wrappers of other extensions, which may refuse a call before there is a task.
    around, tools.handler = split_call_handler(sdk_contexts.server, calls.handler)
    watching = SharedFollower(runtime)
    asking, pushing = ElicitationBroker(runtime, watching), StatusNotifier(runtime, watching)
    waiting = CallWaiter(runtime, watching, asking)
    tool_calls = ToolCalls(runtime, tools, sdk_contexts, waiting)
    server.add_request_handler("tools/call", CallToolRequestParams, around(tool_calls))
    g1, g2 = V2025Methods(runtime, watching, asking, pushing), V2026Methods(runtime)
    for method, handler in {
        "tasks/get": by_generation(v2025_handler=g1.get, v2026_handler=g2.get),
        "tasks/result": by_generation(v2025_handler=g1.result),
        "tasks/list": by_generation(v2025_handler=g1.list),
        "tasks/update": by_generation(v2026_handler=g2.update),
        "tasks/cancel": by_generation(v2025_handler=g1.cancel, v2026_handler=g2.cancel),
    }.items():
        server.add_request_handler(method, RequestParams, handler)
    server.middleware.append(ignore_task_field)
    server.middleware.append(IdempotencyHints(runtime, tools))
    server.middleware.append(V2025Middleware(runtime, tools, pushing))
    if runtime.fallback_messages is not None:
        server.middleware.append(FallbackToolList(server, runtime, tools, runtime.fallback_messages))
    _install_subscription_handler(server, SubscriptionHandler(runtime))
    server.extensions[EXTENSION] = {}
    server.lifespan = _wrap_lifespan(server.lifespan, runtime, tools, sdk_contexts)


def _install_subscription_handler(server: Server[Any], handler: SubscriptionHandler) -> None:
    """Install the handler before the server's own subscription handler, behind all middleware.

    A server without such a handler gets middleware instead: with a handler, it would claim to serve other streams too.
    """
    theirs = server.get_request_handler(LISTEN_METHOD)
    if theirs is None:
        server.middleware.append(handler)
        return

    async def listen(ctx: AnyContext, params: SubscriptionsListenRequestParams) -> HandlerResult:
        return await handler(ctx, lambda ctx: theirs.handler(ctx, params))

    server.add_request_handler(LISTEN_METHOD, SubscriptionsListenRequestParams, listen)


async def ignore_task_field(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
    """Drop `params.task` from calls since 2026-07-28, where the server alone decides on a task."""
    if ctx.method == "tools/call" and is_modern(ctx) and ctx.params is not None and "task" in ctx.params:
        ctx = replace(ctx, params={name: value for name, value in ctx.params.items() if name != "task"})
    return await call_next(ctx)


def _prepare(server: Server[Any], runtime: ServerRuntime, tools: ToolRegistry, names: list[str]) -> None:
    tools.register_all(names)
    if runtime.fallback_messages is not None and tools.has_mode("auto"):
        ours = runtime.fallback_messages.tools
        # A low-level server has no tool list at startup. Some can report the names of their tools all the same.
        ours.check_free((*names, *tools.enabled.names, *declared_tool_names(server, ours)))


def _wrap_lifespan(
    theirs: Lifespan, runtime: ServerRuntime, tools: ToolRegistry, sdk_contexts: SdkContextFactory
) -> Lifespan:
    """Wrap the server's lifespan around the engine, so that task bodies see the state that it yields."""

    @asynccontextmanager
    async def lifespan(server: Server[Any]) -> AsyncGenerator[Any]:
        async with theirs(server) as state:
            # The key is a new object, because several entries may yield the same state.
            mark = object()
            sdk_contexts.lifespan_states[mark] = state
            try:
                listed = [] if sdk_contexts.server is None else await sdk_contexts.server.list_tools()
                async with runtime.keep_running(
                    lambda: _prepare(server, runtime, tools, [tool.name for tool in listed])
                ):
                    yield state
            finally:
                del sdk_contexts.lifespan_states[mark]

    return lifespan
