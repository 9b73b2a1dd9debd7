"""Whose request it is. Asked anew for every request, and of nothing that an earlier one left behind."""

import secrets
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken, principal_components
from starlette.requests import HTTPConnection

from raincheck.core.owner import Owner, OwnerKind
from raincheck.server.requests import is_modern
from raincheck.server.sdk import AnyContext, connection_of

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
