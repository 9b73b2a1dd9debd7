"""The owner function of the measured servers, which have many users."""

from starlette.requests import Request

from raincheck import Owner
from raincheck.server.sdk_compat import AnyContext


def by_header(context: AnyContext) -> Owner | None:
    """Return the user that the authorization header names, without authentication."""
    request = context.request
    name = request.headers.get("authorization") if isinstance(request, Request) else None
    return Owner.token("https://issuer.example", name) if name else None
