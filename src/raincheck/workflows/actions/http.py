"""HTTP for steps: only where the file allows, also after redirects, and never more of an answer than is wanted.

Steps that ask a server over HTTP.
"""

import asyncio
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

import httpx2

from raincheck.core.payload import Json, encode
from raincheck.workflows.actions.base import ActionFailed, Occasion
from raincheck.workflows.expressions.sandbox import text_of
from raincheck.workflows.expressions.template import ExpressionFailed, Template
from raincheck.workflows.parsing.models import HttpModel
from raincheck.workflows.permissions import Surroundings

MOST_REDIRECTS = 5
USUAL_PORTS = {"http": 80, "https": 443}
PATIENCE = 60.0
"""Seconds without a sign of the server, if the step has no timeout that is over before."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    charset: str


@dataclass(frozen=True, slots=True)
class Request:
    """What a server is asked."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None
    max_body: int


async def fetch(request: Request, surroundings: Surroundings | None) -> Answer:
    """Send a request, and follow where it is sent on to.

    Without surroundings it goes wherever it says, but nowhere else.

    Raises:
        ActionFailed: it is not allowed there, there is no answer, or a larger one than is wanted.
    """
    client = await asyncio.to_thread(_make_client)
    try:
        async with client:
            return await _follow(client, request, surroundings)
    except httpx2.TimeoutException as error:
        raise ActionFailed("timeout", f"{_host(request.url)} did not answer in time") from error
    except httpx2.ConnectError as error:
        message = f"{_host(request.url)} can't be reached: nothing listens there, or there is no such host"
        raise ActionFailed("http", message) from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        # Without its words, which may tell of what was sent.
        raise ActionFailed("http", f"{_host(request.url)} can't be asked: {type(error).__name__}") from error
    except (ValueError, UnicodeError) as error:
        raise ActionFailed("refused", f"this request can't be sent: {type(error).__name__}") from error


def _make_client() -> httpx2.AsyncClient:
    """In a thread, since it reads certificates."""
    return httpx2.AsyncClient(timeout=PATIENCE, follow_redirects=False)


async def _follow(client: httpx2.AsyncClient, request: Request, surroundings: Surroundings | None) -> Answer:
    # As it was said, which is what can be mended, and then as the client takes it.
    check_url(request.url, surroundings)
    built = client.build_request(request.method, request.url, headers=dict(request.headers), content=request.body)
    for _ in range(MOST_REDIRECTS + 1):
        check_url(str(built.url), surroundings)
        response = await client.send(built, stream=True)
        try:
            following = response.next_request
            if following is None or surroundings is None:
                return await _read(response, request.max_body)
        finally:
            await response.aclose()
        built = following
    raise ActionFailed("http", f"{_host(request.url)} redirects more than {MOST_REDIRECTS} times")


def check_url(url: str, surroundings: Surroundings | None) -> None:
    """Refuse a URL that the file does not allow.

    Raises:
        ActionFailed: it says what to do.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise ActionFailed("refused", "this is no URL") from error
    if parts.scheme not in USUAL_PORTS or not host:
        raise ActionFailed("refused", f"a URL begins with https:// or http:// and a host, not {url[:60]!r}")
    if surroundings is not None and not surroundings.allows_host(host, port or USUAL_PORTS[parts.scheme]):
        said = f"[{host}]" if ":" in host else host
        said = said if port is None else f"{said}:{port}"
        raise ActionFailed("refused", f"host {said!r} is not allowed: add it to `allow.hosts`")


async def _read(response: httpx2.Response, most: int) -> Answer:
    body = bytearray()
    async for chunk in response.aiter_bytes(65_536):
        body += chunk
        if len(body) > most:
            raise ActionFailed("too-large", f"the answer has more than {most:,} bytes: raise `max_body`")
    charset = response.charset_encoding or "utf-8"
    return Answer(response.status_code, dict(response.headers.items()), bytes(body), charset)


def _host(url: str) -> str:
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or "the server"
    except ValueError:
        return "the server"


CHARSETS = re.compile(r"utf-?(?:8|16|32)(?:-?[lb]e)?|latin-?1|iso-?8859-?\d{1,2}|(?:cp|windows-?)125\d|(?:us-)?ascii")
"""What a server may say that its text is written in. Others can take very long, or are no charsets at all."""


class Http:
    """A request. Its result is `{status, headers, body}`, where the body of JSON is JSON."""

    waits = False

    def __init__(self, model: HttpModel, surroundings: Surroundings) -> None:
        self._model = model
        self._surroundings = surroundings
        self._sent = Template.parse(
            {"url": model.url, "headers": model.headers, "json": model.body_json, "body": model.body}
        )
        self.words = f"{model.method} {re.sub(r'{{.*?}}', '…', model.url).split('?')[0]}"

    async def perform(self, occasion: Occasion) -> Json:
        sent = cast("Mapping[str, Json]", self._sent.render(occasion.within(self._surroundings.variables())))
        headers = _headers(sent["headers"])
        body = None if sent["body"] is None else str(sent["body"]).encode()
        if "body_json" in self._model.model_fields_set:
            body = encode(sent["json"], what="the body")
            headers.setdefault("content-type", "application/json")
        request = Request(self._model.method, str(sent["url"]), headers, body, self._model.max_body)
        return self._result(await fetch(request, self._surroundings))

    def _result(self, answer: Answer) -> Json:
        expected = range(200, 300) if self._model.expect is None else self._model.expect
        if answer.status not in expected:
            raise ActionFailed("http", f"it answered with status {answer.status}")
        return {"status": answer.status, "headers": answer.headers, "body": read_body(answer)}


def read_body(answer: Answer) -> Json:
    """The body of an answer: JSON if it says so, else text.

    Raises:
        ActionFailed: it is neither.
    """
    try:
        text = _text(answer)
        if "json" not in answer.headers.get("content-type", "") or not text:
            return text
        value: Json = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ActionFailed("http", "the answer is neither text nor JSON") from error
    return value


def _text(answer: Answer) -> str:
    charset = answer.charset.strip().lower().replace("_", "-")
    if CHARSETS.fullmatch(charset):
        with suppress(LookupError):
            return answer.body.decode(charset)
    return answer.body.decode(errors="replace")


def _headers(rendered: Json) -> dict[str, str]:
    try:
        return {name.lower(): text_of(value) for name, value in cast("Mapping[str, Json]", rendered).items()}
    except TypeError as error:
        raise ExpressionFailed(f"a header: {error}") from error
