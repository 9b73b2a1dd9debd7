"""Actions that send an HTTP request.

Requests go only to hosts that the file allows, also after redirects, and never read more of a response than its limit.
"""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

import httpx2

from raincheck.core.values import Json, encode
from raincheck.workflows.actions.base import Action, ActionCall, ActionFailed
from raincheck.workflows.definition import Problem
from raincheck.workflows.expressions.template import Template, has_expressions, rendered_texts
from raincheck.workflows.parsing.models import ActionModel, HttpModel
from raincheck.workflows.permissions import Permissions

MAX_REDIRECTS = 5
DEFAULT_PORTS = {"http": 80, "https": 443}
IDLE_TIMEOUT = 60.0
"""Seconds without data from the server, unless the step's own timeout expires before."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request to a server."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None
    max_body: int


async def fetch(request: HttpRequest, permissions: Permissions | None) -> tuple[httpx2.Response, bytes]:
    """Send a request, follow redirects, and return the response with its body.

    Without permissions every host is allowed, but redirects are not followed.

    Raises:
        ActionFailed: the host is not allowed, there is no response, or it is larger than `max_body`.
    """
    # In a thread, since it reads certificates.
    client = await asyncio.to_thread(httpx2.AsyncClient, timeout=IDLE_TIMEOUT, follow_redirects=False)
    try:
        async with client:
            return await _follow(client, request, permissions)
    except httpx2.TimeoutException as error:
        raise ActionFailed("timeout", f"{_host(request.url)} did not answer in time") from error
    except httpx2.ConnectError as error:
        message = f"{_host(request.url)} can't be reached: the host does not exist, or no server listens there"
        raise ActionFailed("http", message) from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        # Without the error's message, which may contain parts of the request.
        raise ActionFailed("http", f"the request to {_host(request.url)} failed: {type(error).__name__}") from error
    except (ValueError, UnicodeError) as error:
        raise ActionFailed("refused", f"this request can't be sent: {type(error).__name__}") from error


async def _follow(
    client: httpx2.AsyncClient, request: HttpRequest, permissions: Permissions | None
) -> tuple[httpx2.Response, bytes]:
    # First the URL as the author wrote it, for a message about that, and then as the client parses it.
    check_url(request.url, permissions)
    built = client.build_request(request.method, request.url, headers=dict(request.headers), content=request.body)
    for _ in range(MAX_REDIRECTS + 1):
        check_url(str(built.url), permissions)
        response = await client.send(built, stream=True)
        try:
            following = response.next_request
            if following is None or permissions is None:
                return response, await _read(response, request.max_body)
        finally:
            await response.aclose()
        built = following
    raise ActionFailed("http", f"{_host(request.url)} redirects more than {MAX_REDIRECTS} times")


def check_url(url: str, permissions: Permissions | None) -> None:
    """Refuse a URL that the file does not allow.

    Raises:
        ActionFailed: the URL is refused; the message says what to do.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise ActionFailed("refused", "this is not a valid URL") from error
    if parts.scheme not in DEFAULT_PORTS or not host:
        raise ActionFailed("refused", "a URL must start with https:// or http:// and a host")
    if permissions is not None and not permissions.allows_host(host, port or DEFAULT_PORTS[parts.scheme]):
        name = f"[{host}]" if ":" in host else host
        name = name if port is None else f"{name}:{port}"
        raise ActionFailed("refused", f"host {name!r} is not allowed: add it to `allow.hosts`")


async def _read(response: httpx2.Response, max_bytes: int) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes(65_536):
        body += chunk
        if len(body) > max_bytes:
            raise ActionFailed("too-large", f"the response has more than {max_bytes:,} bytes: raise `max_body`")
    return bytes(body)


def _host(url: str) -> str:
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or "the server"
    except ValueError:
        return "the server"


CHARSETS = re.compile(r"utf-?(?:8|16|32)(?:-?[lb]e)?|latin-?1|iso-?8859-?\d{1,2}|(?:cp|windows-?)125\d|(?:us-)?ascii")
"""The charsets that a server may declare. Other names may not be charsets at all, or take very long to decode."""


class HttpAction(Action):
    """Send a request. The result is `{status, headers, body}`, where a JSON body is decoded."""

    template_keys = ("url", "headers", "json", "body")

    def __init__(self, model: ActionModel, permissions: Permissions) -> None:
        super().__init__(model, permissions)
        self._options = http = cast("HttpModel", model.http)
        self._request = Template.parse(
            {"url": http.url, "headers": http.headers, "json": http.body_json, "body": http.body}
        )
        self.label = f"{http.method} {re.sub(r'{{.*?}}', '…', http.url).split('?')[0]}"

    @staticmethod
    def check(model: ActionModel, permissions: Permissions) -> Iterator[Problem]:
        url = cast("HttpModel", model.http).url
        prefix = url.split("{{")[0]
        # The host is constant if it ends before the first expression.
        if not has_expressions(url) or prefix.count("/") > 2:
            try:
                check_url(prefix, permissions)
            except ActionFailed as error:
                yield ("http", "url"), str(error)

    async def perform(self, call: ActionCall) -> Json:
        fields = cast("Mapping[str, Json]", self._request.render(self.scope_with_env(call)))
        headers = {name.lower(): text for name, text in rendered_texts(fields["headers"], "a header").items()}
        body = None if fields["body"] is None else str(fields["body"]).encode()
        if "body_json" in self._options.model_fields_set:
            body = encode(fields["json"], what="the body")
            headers.setdefault("content-type", "application/json")
        request = HttpRequest(self._options.method, str(fields["url"]), headers, body, self._options.max_body)
        response, content = await fetch(request, self._permissions)
        status = response.status_code
        if status not in (self._options.expect or range(200, 300)):
            raise ActionFailed("http", f"the server answered with status {status}")
        return {"status": status, "headers": dict(response.headers), "body": _decode_body(response, content)}


def _decode_body(response: httpx2.Response, content: bytes) -> Json:
    """Return the body of a response: decoded if its content type is JSON, else as text.

    Raises:
        ActionFailed: it is neither.
    """
    try:
        text = _text(response.charset_encoding or "utf-8", content)
        if "json" not in response.headers.get("content-type", "") or not text:
            return text
        value: Json = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ActionFailed("http", "the response is neither text nor JSON") from error
    return value


def _text(declared: str, content: bytes) -> str:
    charset = declared.strip().lower().replace("_", "-")
    if CHARSETS.fullmatch(charset):
        with suppress(LookupError):
            return content.decode(charset)
    return content.decode(errors="replace")
