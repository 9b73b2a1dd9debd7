"""Whose request it is, for servers that are measured: many users, as a server has that knows them."""

from starlette.requests import Request

from raincheck import Owner
from raincheck.server.sdk_compat import AnyContext


def by_header(context: AnyContext) -> Owner | None:
    """The user whom the header names, whoever sends it."""
    request = context.request
    name = request.headers.get("authorization") if isinstance(request, Request) else None
    return Owner.token("https://issuer.example", name) if name else None
