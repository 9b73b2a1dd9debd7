"""The server under test: one at a URL, or one that a command starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from raincheck.conformance.connection import Transport
from raincheck.conformance.transport.http import HttpTransport
from raincheck.conformance.transport.stdio import StdioTransport


@dataclass(frozen=True)
class ConformanceTarget:
    """A URL or a command, and the caller's headers. `other_headers` identify another caller, which must see nothing."""

    url: str = ""
    command: Sequence[str] = ()
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    other_headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def __post_init__(self) -> None:
        if bool(self.url) == bool(self.command):
            raise ValueError("a target needs either a URL or a command")
        if self.url and (urlsplit(self.url).scheme not in ("http", "https") or not urlsplit(self.url).hostname):
            raise ValueError(f"{self.url!r} is not an HTTP URL: use the form http://host:port/path")
        if self.command and (self.headers or self.other_headers):
            raise ValueError("headers need a URL: a command on stdio has none")
        for name, value in (*self.headers.items(), *self.other_headers.items()):
            if not f"{name}{value}".isascii() or not f"{name}{value}".isprintable():
                raise ValueError(f"the header {name!r} has characters that HTTP can't send: use printable ASCII")

    @property
    def is_http(self) -> bool:
        return bool(self.url)

    def make_transport(self, *, as_other: bool = False) -> Transport:
        if self.url:
            return HttpTransport(self.url, self.other_headers if as_other else self.headers)
        return StdioTransport(self.command)

    def __str__(self) -> str:
        if not self.url:
            return " ".join(self.command)
        parts = urlsplit(self.url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
