"""Identify the owner of a request, and store the caller with its task.

The owner is determined for every request, and never from what an earlier request left behind.

A task stores what its body needs to know about the call, to see it in another process, days later. It stores the
verified identity and never a token.

Unverified callers share one rate limit, because any of them can appear as any number of owners.
"""

import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from datetime import timedelta
from hashlib import blake2b
from typing import Any, Literal, TypeAlias, cast

from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken, principal_components
from mcp_types import ClientCapabilities
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from starlette.requests import HTTPConnection

from raincheck.clock import Clock
from raincheck.core.limits import Quota
from raincheck.core.owner import Owner, OwnerKind
from raincheck.core.payload import Json
from raincheck.core.records import InputKind
from raincheck.errors import QuotaExceeded
from raincheck.server.caller import is_modern
from raincheck.server.sdk_compat import AnyContext, connection_of
from raincheck.wire.fields import as_object

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

KEY_NAME = "owners"
"""The store's secret for hashes of headers."""


def verified_token(ctx: AnyContext) -> AccessToken | None:
    """Return the token that the SDK's authentication verified for this request."""
    request = ctx.request
    user = request.scope.get("user") if isinstance(request, HTTPConnection) else None
    return user.access_token if isinstance(user, AuthenticatedUser) else None


def owner_of(ctx: AnyContext, key: bytes, *, by_session: bool = False) -> Owner:
    """Return the owner on whose behalf a request is made.

    `key` is for hashes of values that are not verified, and must not be readable. `by_session` distinguishes anonymous
    callers by their sessions. Callers of 2026-07-28 have none.
    """
    request: Any = ctx.request
    if not isinstance(request, HTTPConnection):
        # No HTTP: stdio, a local socket, or the same process.
        return LOCAL_OWNER
    token = verified_token(ctx)
    if token is not None:
        return _owner_of_token(token)
    header = request.headers.get("authorization")
    if header:
        return Owner(OwnerKind.HEADER, (_digest(header, key),))
    session = _session_of(ctx) if by_session else None
    return ANONYMOUS_OWNER if session is None else Owner(OwnerKind.SESSION, (_digest(session, key),))


def _session_of(ctx: AnyContext) -> str | None:
    """Return a name that distinguishes the session of a request from others, or None without a session."""
    connection = connection_of(ctx)
    if connection.session_id is not None or not connection.has_standalone_channel or is_modern(ctx):
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


def describe_caller(ctx: AnyContext, answers: Json = None, *, has_fallback: bool = False) -> dict[str, Json]:
    """Describe a call for its task to store: the caller, its capabilities, its answers so far, and its trace."""
    trace_context: dict[str, Json] = {}
    propagate.inject(trace_context)
    fields: dict[str, Json] = {"identity": _identity(ctx), "trace": trace_context, "answers": answers}
    present = {name: value for name, value in fields.items() if value}
    declared = declared_capabilities(ctx.session.client_capabilities)
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


def declared_capabilities(declared: ClientCapabilities | None) -> Mapping[str, Json]:
    """Return the input capabilities that a caller declared."""
    if declared is None or not (declared.elicitation or declared.sampling or declared.roots):
        return {}
    kinds = {str(kind) for kind in InputKind}
    return declared.model_dump(mode="json", by_alias=True, exclude_none=True, include=kinds)


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


UNVERIFIED_KINDS = frozenset({OwnerKind.HEADER, OwnerKind.SESSION, OwnerKind.ANONYMOUS})


class AnonymousRateLimit:
    """Limits the new tasks of unverified callers in this process, as if they were all one owner."""

    def __init__(self, clock: Clock, quota: Quota) -> None:
        self._clock = clock
        self._quota = quota
        self._created_at: deque[float] = deque()

    def admit(self, owner: Owner) -> None:
        """Admit one more task, if the limit allows it.

        Raises:
            QuotaExceeded: the limit for unverified callers is reached.
        """
        if owner.kind not in UNVERIFIED_KINDS or self._quota.created is None:
            return
        now, window = self._clock.monotonic(), self._quota.window.total_seconds()
        while self._created_at and self._created_at[0] <= now - window:
            self._created_at.popleft()
        if len(self._created_at) >= self._quota.created:
            after = timedelta(seconds=self._created_at[0] + window - now)
            raise QuotaExceeded("new tasks of unknown callers, who count as one owner", self._quota.created, after)
        self._created_at.append(now)
