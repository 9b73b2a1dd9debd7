"""Attach tasks to a server: its handlers, capabilities and lifespan. Only this module changes a server."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

from mcp.server.lowlevel import Server
from mcp_types import CallToolRequestParams, RequestParams

from raincheck.errors import ConfigurationError
from raincheck.server.caller import OwnerResolver, by_generation
from raincheck.server.disconnect import AbandonedCalls
from raincheck.server.fallback.tool_list import FallbackToolList, declared_tool_names
from raincheck.server.fallback.tools import FallbackToolCalls
from raincheck.server.limits import AnonymousRateLimit
from raincheck.server.middleware import TaskMiddleware
from raincheck.server.results import TaskRenderer
from raincheck.server.runtime import ServerRuntime
from raincheck.server.sdk_compat import install_filters, split_call_handler
from raincheck.server.tool_calls import ToolCalls
from raincheck.server.tools.registry import ToolRegistry
from raincheck.server.tools.task_session import SdkContextFactory
from raincheck.server.v2025.elicitation import ElicitationBroker
from raincheck.server.v2025.methods import V2025Methods
from raincheck.server.v2025.notifications import SharedFollower, StatusNotifier
from raincheck.server.v2026.methods import V2026Methods
from raincheck.server.wait import CallWaiter
from raincheck.server.wait_policy import WaitPolicy
from raincheck.wire.fallback_text import FallbackMessages
from raincheck.wire.v2026 import EXTENSION

Lifespan: TypeAlias = Callable[[Server[Any]], AbstractAsyncContextManager[Any]]


def attach(
    server: Server[Any],
    runtime: ServerRuntime,
    owners: OwnerResolver,
    wait_policy: WaitPolicy,
    tools: ToolRegistry,
    sdk_contexts: SdkContextFactory,
) -> None:
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
    wait, names = runtime.options.fallback_wait, runtime.options.fallback_tools
    messages = None if wait is None else FallbackMessages(names, wait)
    follower, renderer = SharedFollower(runtime), TaskRenderer(runtime, wait_policy)
    broker, notifier = ElicitationBroker(runtime, follower), StatusNotifier(runtime.clock, wait_policy, follower)
    waiter = CallWaiter(runtime, wait_policy, follower, broker, messages)
    fallback_calls = messages and FallbackToolCalls(runtime, wait_policy, waiter, renderer, messages)
    fallback_list = messages and FallbackToolList(server, owners, tools, messages)
    tool_calls = ToolCalls(
        runtime,
        owners,
        tools,
        sdk_contexts,
        wait_policy,
        waiter,
        renderer,
        fallback_calls,
        AbandonedCalls(runtime),
        AnonymousRateLimit(runtime.clock, runtime.options.settings.quota),
    )
    server.add_request_handler("tools/call", CallToolRequestParams, wrap_in_extensions(tool_calls))
    v2025 = V2025Methods(runtime, wait_policy, renderer, follower, broker, notifier)
    v2026 = V2026Methods(runtime, owners, wait_policy, renderer)
    for method, handler in {
        "tasks/get": by_generation(owners, v2025_handler=v2025.get, v2026_handler=v2026.get),
        "tasks/result": by_generation(owners, v2025_handler=v2025.result, render=v2025.render_result),
        "tasks/list": by_generation(owners, v2025_handler=v2025.list),
        "tasks/update": by_generation(owners, v2026_handler=v2026.update),
        "tasks/cancel": by_generation(owners, v2025_handler=v2025.cancel, v2026_handler=v2026.cancel),
    }.items():
        server.add_request_handler(method, RequestParams, handler)
    server.middleware.append(TaskMiddleware(runtime, owners, tools, notifier, fallback_list))
    v2026.serve_subscriptions(server)
    server.extensions[EXTENSION] = {}
    server.lifespan = _wrap_lifespan(server.lifespan, runtime, tools, sdk_contexts)


def _prepare(server: Server[Any], runtime: ServerRuntime, tools: ToolRegistry, names: list[str]) -> None:
    tools.register_all(names)
    if runtime.options.fallback_wait is not None and tools.has_mode("auto"):
        fallback_names = runtime.options.fallback_tools
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
