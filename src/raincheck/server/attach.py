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
        raise ConfigurationError(f"server {server.name!r} has tasks already: attach them only once")
    calls = server.get_request_handler("tools/call")
    if calls is None:
        raise ConfigurationError(
            f"server {server.name!r} serves no tools: pass on_call_tool to it before you attach tasks"
        )
    # Inside the wrappers of other extensions, which may refuse a call before there is a task.
    wrap_in_extensions, tools.handler = split_call_handler(sdk_contexts.server, calls.handler)
    follower = SharedFollower(runtime)
    broker, notifier = ElicitationBroker(runtime, follower), StatusNotifier(runtime, follower)
    tool_calls = ToolCalls(runtime, tools, sdk_contexts, CallWaiter(runtime, follower, broker))
    server.add_request_handler("tools/call", CallToolRequestParams, wrap_in_extensions(tool_calls))
    v2025, v2026 = V2025Methods(runtime, follower, broker, notifier), V2026Methods(runtime)
    for method, handler in {
        "tasks/get": by_generation(v2025_handler=v2025.get, v2026_handler=v2026.get),
        "tasks/result": by_generation(v2025_handler=v2025.result),
        "tasks/list": by_generation(v2025_handler=v2025.list),
        "tasks/update": by_generation(v2026_handler=v2026.update),
        "tasks/cancel": by_generation(v2025_handler=v2025.cancel, v2026_handler=v2026.cancel),
    }.items():
        server.add_request_handler(method, RequestParams, handler)
    server.middleware.append(ignore_task_field)
    server.middleware.append(IdempotencyHints(runtime, tools))
    server.middleware.append(V2025Middleware(runtime, tools, notifier))
    if runtime.fallback_messages is not None:
        server.middleware.append(FallbackToolList(server, runtime, tools, runtime.fallback_messages))
    _install_subscription_handler(server, SubscriptionHandler(runtime))
    server.extensions[EXTENSION] = {}
    server.lifespan = _wrap_lifespan(server.lifespan, runtime, tools, sdk_contexts)


def _install_subscription_handler(server: Server[Any], handler: SubscriptionHandler) -> None:
    """Install the handler before the server's own subscription handler, behind all middleware.

    A server without such a handler gets middleware instead: with a handler, it would claim to serve other streams too.
    """
    own_handler = server.get_request_handler(LISTEN_METHOD)
    if own_handler is None:
        server.middleware.append(handler)
        return

    async def listen(ctx: AnyContext, params: SubscriptionsListenRequestParams) -> HandlerResult:
        return await handler(ctx, lambda ctx: own_handler.handler(ctx, params))

    server.add_request_handler(LISTEN_METHOD, SubscriptionsListenRequestParams, listen)


async def ignore_task_field(ctx: AnyContext, call_next: CallNext) -> HandlerResult:
    """Drop `params.task` from calls since 2026-07-28, where the server alone decides on a task."""
    if ctx.method == "tools/call" and is_modern(ctx) and ctx.params is not None and "task" in ctx.params:
        ctx = replace(ctx, params={name: value for name, value in ctx.params.items() if name != "task"})
    return await call_next(ctx)


def _prepare(server: Server[Any], runtime: ServerRuntime, tools: ToolRegistry, names: list[str]) -> None:
    tools.register_all(names)
    if runtime.fallback_messages is not None and tools.has_mode("auto"):
        fallback_names = runtime.fallback_messages.tools
        # A low-level server has no tool list at startup. Some can report the names of their tools all the same.
        fallback_names.check_free((*names, *tools.enabled.names, *declared_tool_names(server, fallback_names)))


def _wrap_lifespan(
    own_lifespan: Lifespan, runtime: ServerRuntime, tools: ToolRegistry, sdk_contexts: SdkContextFactory
) -> Lifespan:
    """Wrap the server's lifespan around the engine, so that task bodies see the state that it yields."""

    @asynccontextmanager
    async def lifespan(server: Server[Any]) -> AsyncGenerator[Any]:
        async with own_lifespan(server) as state:
            # The key is a new object, because several entries may yield the same state.
            key = object()
            sdk_contexts.lifespan_states[key] = state
            try:
                listed = [] if sdk_contexts.server is None else await sdk_contexts.server.list_tools()
                async with runtime.keep_running(
                    lambda: _prepare(server, runtime, tools, [tool.name for tool in listed])
                ):
                    yield state
            finally:
                del sdk_contexts.lifespan_states[key]

    return lifespan
