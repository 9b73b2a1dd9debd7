"""What a task keeps of the call it came from, and how its body gets to see it in another process, days later.

Never a token: who was verified is kept, not what they were verified by.

Whose request it is. Asked anew for every request, and of nothing that an earlier one left behind.

What callers whom nobody vouches for may make together: any of them can be as many owners as they like.
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
"""For servers with an authentication of their own: whose request it is; None leaves it to the rules here.

`ctx.request` is the HTTP request, where there is one. It may be a coroutine.
"""

Anonymous: TypeAlias = Literal["id", "session"]
"""What gives a caller that nobody knows the right to a task: to have its id, or to be in the session it began in."""

SESSION = "raincheck/session"
"""Where a connection keeps what tells it from others."""

ANYBODY, HERE = Owner.anonymous(), Owner.local()

KEY_NAME = "owners"
"""The store's secret for hashes of headers."""


def verified_token(ctx: AnyContext) -> AccessToken | None:
    """The token that the SDK's authentication has verified for this request."""
    request = ctx.request
    user = request.scope.get("user") if isinstance(request, HTTPConnection) else None
    return user.access_token if isinstance(user, AuthenticatedUser) else None


def owner_of(ctx: AnyContext, key: bytes, *, by_session: bool = False) -> Owner:
    """The owner of what a request asks for. `key` is for hashes of what nobody verifies, and nobody should read.

    `by_session` tells strangers apart by the sessions they have. Callers of 2026 have none.
    """
    request: Any = ctx.request
    if not isinstance(request, HTTPConnection):
        # No HTTP: stdio, a socket of this machine, or the same process.
        return HERE
    token = verified_token(ctx)
    if token is not None:
        return _owner_of_token(token)
    header = request.headers.get("authorization")
    if header:
        return Owner(OwnerKind.HEADER, (_digest(header, key),))
    session = _session_of(ctx) if by_session else None
    return ANYBODY if session is None else Owner(OwnerKind.SESSION, (_digest(session, key),))


def _session_of(ctx: AnyContext) -> str | None:
    """What tells the session of a request from others, if it has one."""
    connection = connection_of(ctx)
    if connection.session_id is not None or not connection.has_standalone_channel or is_modern(ctx):
        return connection.session_id
    # The older transport over HTTP has sessions, and no name for them: there the connection is one.
    return connection.state.setdefault(SESSION, secrets.token_hex())


def _digest(text: str, key: bytes) -> str:
    # BLAKE2 takes a key by itself. With HMAC it takes ten times as long, for every request.
    return blake2b(text.encode(errors="surrogateescape"), key=key, digest_size=32).hexdigest()


def _owner_of_token(token: AccessToken) -> Owner:
    client_id, issuer, subject = principal_components(token)
    # Some verifiers write nothing as "". Nobody has that name.
    if subject:
        # A verifier that names no issuer knows only one. Falling back on the client would make one owner of all its
        # users.
        return Owner.token(issuer or "", subject)
    return Owner.client(client_id, issuer)


_acting: ContextVar[bool] = ContextVar("raincheck_acting", default=False)
_tracer = trace.get_tracer("raincheck")
_UNTRACED = nullcontext()

ANSWERED_IN_WORDS: Mapping[str, Json] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}}
"""What a caller can be asked that answers by calling a tool, whatever its host can do."""


def describe_caller(ctx: AnyContext, answers: Json = None, *, in_words: bool = False) -> dict[str, Json]:
    """What to keep of a call: who made it, what they can be asked, what they have answered, and its trace."""
    trace_context: dict[str, Json] = {}
    propagate.inject(trace_context)
    told: dict[str, Json] = {"identity": _identity(ctx), "trace": trace_context, "answers": answers}
    known = {name: value for name, value in told.items() if value}
    declared = declared_capabilities(ctx.session.client_capabilities)
    return {**known, "capabilities": _with_words(declared) if in_words else declared}


def _with_words(declared: Mapping[str, Json]) -> Mapping[str, Json]:
    """What a caller can be asked one way or the other."""
    both = {kind: {**as_object(ways), **as_object(declared.get(kind))} for kind, ways in ANSWERED_IN_WORDS.items()}
    return {**declared, **both}


def _identity(ctx: AnyContext) -> Json:
    token = verified_token(ctx)
    if token is None:
        return None
    # Of the SDK's own fields: a verifier's own kind of token may carry the raw one, or others.
    kept = set(AccessToken.model_fields) - {"token"}
    return cast("Json", token.model_dump(mode="json", exclude_none=True, include=kept))


def declared_capabilities(declared: ClientCapabilities | None) -> Mapping[str, Json]:
    """What a caller said it can be asked."""
    if declared is None or not (declared.elicitation or declared.sampling or declared.roots):
        return {}
    kinds = {str(kind) for kind in InputKind}
    return declared.model_dump(mode="json", by_alias=True, exclude_none=True, include=kinds)


def capabilities_of(caller: Json) -> ClientCapabilities:
    """What the caller of a task can be asked."""
    return ClientCapabilities.model_validate(_part(caller, "capabilities"))


def answers_of(caller: Json) -> Mapping[str, Any]:
    """What the caller answered before the task began: the end of the rounds of its call."""
    return _part(caller, "answers")


def is_acting() -> bool:
    """Whether this is the body of a task."""
    return _acting.get()


class ActingFor:
    """Lets the SDK's `get_access_token` tell who called, and puts spans where the call was made.

    Always both, so that a body never sees what an earlier one left.
    """

    __slots__ = ("_acting_before", "_before", "_span", "_user")

    def __init__(self, caller: Json, task_id: str, tool: str) -> None:
        identity = _part(caller, "identity")
        self._user = AuthenticatedUser(AccessToken.model_validate({"token": "", **identity})) if identity else None
        self._span = _traced(_part(caller, "trace"), task_id, tool)

    def __enter__(self) -> None:
        self._before, self._acting_before = auth_context_var.set(self._user), _acting.set(True)
        try:
            self._span.__enter__()
        except BaseException:
            self._leave()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:  # noqa: ANN401 - as they are
        try:
            self._span.__exit__(kind, error, trace)
        finally:
            self._leave()

    def _leave(self) -> None:
        auth_context_var.reset(self._before)
        _acting.reset(self._acting_before)


def _traced(told: Mapping[str, Any], task_id: str, tool: str) -> AbstractContextManager[object]:
    """A span under the one that the call was made in. Nothing where nobody traces: quick bodies would notice."""
    if not told and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return _UNTRACED
    context = propagate.extract(told, Context()) if told else Context()
    attributes = {"raincheck.task.id": task_id, "gen_ai.tool.name": tool}
    return _tracer.start_as_current_span(f"task {tool}", context, trace.SpanKind.CONSUMER, attributes)


def _part(caller: Json, name: str) -> Mapping[str, Any]:
    # What JSON makes of an object. To ask for any mapping takes four times as long.
    part = caller.get(name) if isinstance(caller, dict) else None
    return part if isinstance(part, dict) else {}


UNVERIFIED = frozenset({OwnerKind.HEADER, OwnerKind.SESSION, OwnerKind.ANONYMOUS})


class Strangers:
    """Counts their new tasks in this process, as if they were all one owner."""

    def __init__(self, clock: Clock, quota: Quota) -> None:
        self._clock = clock
        self._quota = quota
        self._made: deque[float] = deque()

    def admit(self, owner: Owner) -> None:
        """Let one more task be made, if there is room.

        Raises:
            QuotaExceeded: there is none for strangers.
        """
        if owner.kind not in UNVERIFIED or self._quota.created is None:
            return
        now, window = self._clock.elapsed(), self._quota.window.total_seconds()
        while self._made and self._made[0] <= now - window:
            self._made.popleft()
        if len(self._made) >= self._quota.created:
            after = timedelta(seconds=self._made[0] + window - now)
            raise QuotaExceeded("new tasks of unknown callers, who count as one owner", self._quota.created, after)
        self._made.append(now)
