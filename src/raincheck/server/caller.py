"""Classify the caller of a request, determine the owner on whose behalf it is made, and store the caller with its task.

The owner is determined for every request, and never from what an earlier request left behind.

A task stores what its body needs to know about the call, to see it in another process, days later. It stores the
verified identity and never a token.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal, Self, TypeAlias, cast

from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken, principal_components
from mcp.server.context import HandlerResult
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import ClientCapabilities
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from starlette.requests import HTTPConnection

from raincheck.core.owner import Owner, OwnerKind
from raincheck.core.records import InputKind, InputRequest, View
from raincheck.core.values import Json, decode
from raincheck.engine.inputs import missing_capability as missing_input_capability
from raincheck.engine.settings import check_type
from raincheck.errors import TaskNotFound
from raincheck.server.errors import ErrorMapping, describe_json, invalid_params, missing_capability
from raincheck.server.sdk_compat import AnyContext, Handler, connection_of
from raincheck.wire import errors, v2025
from raincheck.wire.fields import as_object
from raincheck.wire.v2026 import EXTENSION

MAX_ID_LENGTH = 200
"""Characters. Generated ids are far shorter."""

USES_TASKS = "raincheck/uses-tasks"
"""Key in a connection's state for the fact that its caller has used tasks."""


@dataclass(frozen=True)
class Caller:
    """The caller of a request, classified once by what the request and its connection declare."""

    ctx: AnyContext
    is_modern: bool
    """Whether the protocol version of the request has tasks as an extension."""
    is_v2025: bool
    """Whether the protocol version of the request has tasks in the core protocol."""
    uses_tasks: bool
    """Whether the caller can use tasks. Callers of 2025-11-25 need not declare that they can. A caller that declares
    its own tasks can, and so can a caller that has used tasks on this connection."""

    @classmethod
    def of(cls, ctx: AnyContext) -> Self:
        """Classify the caller of a request."""
        declared, is_v2025 = ctx.session.client_capabilities, ctx.protocol_version == v2025.VERSION
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            takes_tasks = declared is not None and EXTENSION in (declared.extensions or {})
            return cls(ctx, is_modern=True, is_v2025=False, uses_tasks=takes_tasks)
        has_tasks = declared is not None and declared.tasks is not None
        uses_tasks = is_v2025 and (has_tasks or USES_TASKS in connection_of(ctx).state)
        return cls(ctx, is_modern=False, is_v2025=is_v2025, uses_tasks=uses_tasks)

    @property
    def takes_tasks(self) -> bool:
        """Whether the caller declared, in this very request, that it accepts tasks where the server decides."""
        return self.is_modern and self.uses_tasks

    @property
    def wants_task(self) -> bool:
        """Whether the caller itself requests a task, as callers of 2025-11-25 do."""
        return self.is_v2025 and (self.ctx.params or {}).get("task") is not None

    @property
    def accepts_task(self) -> bool:
        """Whether the answer to this request may be a task."""
        return self.takes_tasks or self.wants_task

    @property
    def host(self) -> str | None:
        """The network address of the peer, as the HTTP server reports it: of a proxy's client if it trusts the proxy.

        None without a network.
        """
        request: Any = self.ctx.request
        client = request.client if isinstance(request, HTTPConnection) else None
        return None if client is None else client.host

    @cached_property
    def input_capabilities(self) -> Mapping[str, Json]:
        """The capabilities to answer input requests that the caller declared."""
        declared = self.ctx.session.client_capabilities
        if declared is None or not (declared.elicitation or declared.sampling or declared.roots):
            return {}
        kinds = {str(kind) for kind in InputKind}
        return declared.model_dump(mode="json", by_alias=True, exclude_none=True, include=kinds)

    def can_answer(self, question: InputRequest) -> bool:
        """Return whether the caller declared the capability that a question needs. Another caller may have it."""
        return missing_input_capability(self.input_capabilities, question.kind, decode(question.request)) is None


def record_task_use(ctx: AnyContext) -> None:
    """Record, for the life of the connection, that a caller of 2025-11-25 uses tasks."""
    if ctx.protocol_version == v2025.VERSION:
        connection_of(ctx).state[USES_TASKS] = True


def routed_task_id(caller: Caller) -> str:
    """Return the task id that a request of the extension names.

    Raises:
        MCPError: the caller does not declare tasks, or it is not clear which task is meant.
        TaskNotFound: no task has such an id.
    """
    if not caller.takes_tasks:
        raise missing_capability()
    task_id = task_id_of(caller.ctx)
    _check_routing(caller.ctx, task_id)
    return task_id


def task_id_of(ctx: AnyContext) -> str:
    """Return the task id that a request names.

    Raises:
        MCPError: the request names no task.
        TaskNotFound: no task has such an id.
    """
    task_id: object = (ctx.params or {}).get("taskId")
    if not isinstance(task_id, str):
        kind = "nothing" if task_id is None else describe_json(task_id)
        raise invalid_params(f"{ctx.method} needs params.taskId, a string, not {kind}")
    if len(task_id) > MAX_ID_LENGTH:
        # Neither looked up nor repeated whole: no task has an id of that length.
        raise TaskNotFound(f"{task_id[:MAX_ID_LENGTH]}…")
    return task_id


def _check_routing(ctx: AnyContext, task_id: str) -> None:
    """Check that header and body name the same task: proxies route by the header, and the server by the body."""
    request: Any = ctx.request
    if not isinstance(request, HTTPConnection):
        return
    name = request.headers.get(MCP_NAME_HEADER)
    if decode_header_value(name) != task_id:
        problem = "is missing" if name is None else "names something else"
        raise MCPError(errors.HEADER_MISMATCH, f"the header Mcp-Name {problem}: it must be the request's params.taskId")


OwnerFunction: TypeAlias = Callable[[AnyContext], Owner | Awaitable[Owner | None] | None]
"""Function that returns the owner of a request, for servers with their own authentication.

None leaves the decision to the rules here. `ctx.request` is the HTTP request, where there is one. The function may be a
coroutine.
"""

Anonymous: TypeAlias = Literal["id", "session"]
"""The proof that gives an anonymous caller access to a task: its id, or the session that created it."""

SESSION = "raincheck/session"
"""Key in a connection's state for the name that distinguishes its session from others."""

ANONYMOUS_OWNER, LOCAL_OWNER = Owner.anonymous(), Owner.local()


class OwnerResolver:
    """Determines the owner of each request.

    `key` returns the secret for hashes of values that are not verified. It exists while the server runs.
    """

    def __init__(self, function: OwnerFunction | None, anonymous: Anonymous, key: Callable[[], bytes]) -> None:
        self._function = function
        self._by_session = anonymous == "session"
        self._key = key

    async def owner_of(self, ctx: AnyContext) -> Owner:
        """Return the owner on whose behalf a request is made.

        Raises:
            MCPError: the server can't store anything for this caller.
        """
        with ErrorMapping(ctx):
            owner = None if self._function is None else self._function(ctx)
            if isinstance(owner, Awaitable):
                owner = await owner
            if owner is not None:
                check_type("the value that the server's `owner` function returns", owner, Owner)
                return owner
            return self._default_owner_of(ctx)

    async def find_owner_of(self, ctx: AnyContext) -> Owner | None:
        """Return the owner; None if the server can't store tasks for the caller, whose next request gets that error."""
        try:
            return await self.owner_of(ctx)
        except MCPError:
            return None

    def _default_owner_of(self, ctx: AnyContext) -> Owner:
        request: Any = ctx.request
        if not isinstance(request, HTTPConnection):
            # No HTTP: stdio, a local socket, or the same process.
            return LOCAL_OWNER
        token = verified_token(ctx)
        if token is not None:
            return _owner_of_token(token)
        header = request.headers.get("authorization")
        if header:
            return Owner(OwnerKind.HEADER, (_digest(header, self._key()),))
        session = _session_of(ctx) if self._by_session else None
        if session is None:
            return ANONYMOUS_OWNER
        return Owner(OwnerKind.SESSION, (_digest(session, self._key()),))


MethodHandler: TypeAlias = Callable[[Caller, Owner], Awaitable[HandlerResult | View]]


def by_generation(
    owners: OwnerResolver,
    *,
    v2025_handler: MethodHandler | None = None,
    v2026_handler: MethodHandler | None = None,
    render: Callable[[View], Awaitable[HandlerResult]] | None = None,
) -> Handler:
    """Return a handler that serves a method in each generation. Without a handler, the method does not exist there.

    `render` turns the view of a task that a handler returns into the answer.
    """

    async def serve(ctx: AnyContext, _: object) -> HandlerResult:
        caller = Caller.of(ctx)
        handler = v2026_handler if caller.is_modern else v2025_handler if caller.is_v2025 else None
        if handler is None:
            raise MCPError(errors.METHOD_NOT_FOUND, "Method not found", ctx.method)
        owner = await owners.owner_of(ctx)
        with ErrorMapping(ctx, owner):
            answer = await handler(caller, owner)
        if not isinstance(answer, View):
            return answer
        # Not a refusal, even if it is an error: it is the outcome of the task.
        assert render is not None  # noqa: S101 - given with each handler that returns a view
        return await render(answer)

    return serve


def verified_token(ctx: AnyContext) -> AccessToken | None:
    """Return the token that the SDK's authentication verified for this request."""
    request = ctx.request
    user = request.scope.get("user") if isinstance(request, HTTPConnection) else None
    return user.access_token if isinstance(user, AuthenticatedUser) else None


def _session_of(ctx: AnyContext) -> str | None:
    """Return a name that distinguishes the session of a request from others, or None without a session."""
    connection = connection_of(ctx)
    is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    if connection.session_id is not None or not connection.has_standalone_channel or is_modern:
        return connection.session_id
    # The older HTTP transport has sessions without names: there the connection is the session.
    return connection.state.setdefault(SESSION, secrets.token_hex())


def _digest(text: str, key: bytes) -> str:
    # BLAKE2 takes a key directly. HMAC takes ten times as long, for every request.
    return blake2b(text.encode(errors="surrogateescape"), key=key, digest_size=32).hexdigest()


def _owner_of_token(token: AccessToken) -> Owner:
    client_id, issuer, subject = principal_components(token)
    # Some verifiers represent an absent subject as "". No user has that name.
    if subject:
        # A verifier that names no issuer has only one. Falling back to the client would make one owner of all its
        # users.
        return Owner.token(issuer or "", subject)
    return Owner.client(client_id, issuer)


_in_task_body: ContextVar[bool] = ContextVar("raincheck_in_task_body", default=False)
_tracer = trace.get_tracer("raincheck")
_UNTRACED = nullcontext()

FALLBACK_CAPABILITIES: Mapping[str, Json] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}}
"""Input capabilities of a caller that answers by calling a tool, whatever its host supports."""


def describe_caller(caller: Caller, answers: Json = None, *, has_fallback: bool = False) -> dict[str, Json]:
    """Describe a call for its task to store: the caller, its capabilities, its answers so far, and its trace."""
    trace_context: dict[str, Json] = {}
    propagate.inject(trace_context)
    fields: dict[str, Json] = {"identity": _identity(caller.ctx), "trace": trace_context, "answers": answers}
    present = {name: value for name, value in fields.items() if value}
    declared = caller.input_capabilities
    return {**present, "capabilities": _with_fallback_capabilities(declared) if has_fallback else declared}


def _with_fallback_capabilities(declared: Mapping[str, Json]) -> Mapping[str, Json]:
    """Merge the declared capabilities with those of the fallback tools."""
    both = {
        kind: {**as_object(modes), **as_object(declared.get(kind))} for kind, modes in FALLBACK_CAPABILITIES.items()
    }
    return {**declared, **both}


def _identity(ctx: AnyContext) -> Json:
    token = verified_token(ctx)
    if token is None:
        return None
    # Only the SDK's own fields: a custom token type may carry the raw token, or other secrets.
    stored = set(AccessToken.model_fields) - {"token"}
    return cast("Json", token.model_dump(mode="json", exclude_none=True, include=stored))


def capabilities_of(caller: Json) -> ClientCapabilities:
    """Return the input capabilities of the caller of a task."""
    return ClientCapabilities.model_validate(_part(caller, "capabilities"))


def answers_of(caller: Json) -> Mapping[str, Any]:
    """Return the answers of the caller from before the task started: the last round of its call."""
    return _part(caller, "answers")


def is_in_task_body() -> bool:
    """Return whether the current code is the body of a task."""
    return _in_task_body.get()


class CallerContext:
    """Context manager that sets the caller for the SDK's `get_access_token`, and continues the trace of the call.

    It always sets both, so that a body never sees what an earlier one left behind.
    """

    __slots__ = ("_in_body_before", "_span", "_user", "_user_before")

    def __init__(self, caller: Json, task_id: str, tool: str) -> None:
        identity = _part(caller, "identity")
        self._user = AuthenticatedUser(AccessToken.model_validate({"token": "", **identity})) if identity else None
        self._span = _span(_part(caller, "trace"), task_id, tool)

    def __enter__(self) -> None:
        self._user_before, self._in_body_before = auth_context_var.set(self._user), _in_task_body.set(True)
        try:
            self._span.__enter__()
        except BaseException:
            self._reset()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:  # noqa: ANN401 - as they are
        try:
            self._span.__exit__(kind, error, trace)
        finally:
            self._reset()

    def _reset(self) -> None:
        auth_context_var.reset(self._user_before)
        _in_task_body.reset(self._in_body_before)


def _span(trace_fields: Mapping[str, Any], task_id: str, tool: str) -> AbstractContextManager[object]:
    """Return a span under that of the call, or a no-op without a tracer, because spans slow down quick bodies."""
    if not trace_fields and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return _UNTRACED
    context = propagate.extract(trace_fields, Context()) if trace_fields else Context()
    attributes = {"raincheck.task.id": task_id, "gen_ai.tool.name": tool}
    return _tracer.start_as_current_span(f"task {tool}", context, trace.SpanKind.CONSUMER, attributes)


def _part(caller: Json, name: str) -> Mapping[str, Any]:
    # JSON objects are dicts. A check for any mapping takes four times as long.
    part = caller.get(name) if isinstance(caller, dict) else None
    return part if isinstance(part, dict) else {}
