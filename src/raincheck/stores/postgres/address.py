"""Parse the URL of a PostgreSQL store: the address of the database, and the schemas of the tables."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from raincheck.errors import ConfigurationError

DEFAULT_SCHEMA = "raincheck"

CONNECT_TIMEOUT = 10
"""Seconds to wait for a connection to a host that does not answer."""

CONNECTION_DEFAULTS: dict[str, Any] = {
    "application_name": "raincheck",
    "connect_timeout": CONNECT_TIMEOUT,
    # The default is the database's encoding: for SQL_ASCII, which stores any bytes, the driver would accept only ASCII.
    "client_encoding": "UTF8",
    # A machine that disappears silently is detected within half a minute.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Connection parameters, unless the URL sets them."""

MAX_SCHEMA_BYTES = 40
"""A schema's name becomes part of a channel's name, which has at most 63 bytes."""


@dataclass(frozen=True, slots=True)
class DatabaseTarget:
    """A database, and the schemas in it."""

    conninfo: str = field(repr=False)
    """For the driver. It may contain a password."""
    schema: str
    """The schema of raincheck's tables."""
    jobs_schema: str
    """The schema of Procrastinate's tables."""
    display_url: str
    """The URL for display, without a password."""


def parse_url(url: str) -> DatabaseTarget:
    """Parse the URL. Two of its parameters are for raincheck: `schema`, and `procrastinate_schema`.

    Raises:
        ConfigurationError: it can't be parsed. The message does not repeat it: it may contain a password.
    """
    try:
        parts = urlsplit(url)
        parameters = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        own = {name: value for name, value in parameters if name in ("schema", "procrastinate_schema")}
        driver_parameters = [(name, value) for name, value in parameters if name not in own]
        # Built by hand: `urlunsplit` drops the slashes of a URL without a host, which is one over a Unix socket.
        conninfo = f"postgresql://{parts.netloc}{parts.path}?{urlencode(driver_parameters, quote_via=quote)}"
        settings = conninfo_to_dict(conninfo)
        _check_parts(settings)
        conninfo = make_conninfo(
            conninfo, **{name: value for name, value in CONNECTION_DEFAULTS.items() if name not in settings}
        )
    except (ValueError, psycopg.Error) as error:
        # Of the error's text, repeat only what can't be a password.
        unknown = re.search(r'query parameter: "(\w+)"', str(error))
        reason = f"unknown parameter {unknown[1]!r}" if unknown else type(error).__name__
        raise ConfigurationError(
            f"the URL of the PostgreSQL store can't be parsed ({reason}): write "
            f"postgresql://user:password@host:5432/database, with %40 for an @ in the password, and %2F for a /"
        ) from None
    schema = _check_schema_name(own.get("schema", DEFAULT_SCHEMA))
    jobs_schema = _check_schema_name(own.get("procrastinate_schema", schema))
    host = ":".join(str(settings[name]) for name in ("host", "port") if settings.get(name))
    return DatabaseTarget(conninfo, schema, jobs_schema, f"postgresql://{host}/{settings.get('dbname') or ''}")


def _check_parts(settings: Mapping[str, object]) -> None:
    """Refuse a URL whose password (with a `/` or an `@`) was parsed as another part, which would then be shown."""
    displayed = f"{settings.get('host', '')}{settings.get('dbname', '')}"
    if "@" in displayed or not re.fullmatch(r"[\d,]*", str(settings.get("port") or "")):
        raise ValueError


def _check_schema_name(schema: str) -> str:
    if not schema or len(schema.encode()) > MAX_SCHEMA_BYTES or not schema.isprintable():
        raise ConfigurationError(
            f"{schema!r} can't be the schema of a store: use a name of 1 to {MAX_SCHEMA_BYTES} characters"
        )
    return schema
