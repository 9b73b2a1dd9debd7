"""What a store's URL says: where the database is, and in which schemas the tables are."""

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

SETTINGS: dict[str, Any] = {
    "application_name": "raincheck",
    "connect_timeout": CONNECT_TIMEOUT,
    # By default it is the database's: for SQL_ASCII, which stores any bytes, the driver would take ASCII alone.
    "client_encoding": "UTF8",
    # A machine that is gone without a word is noticed within half a minute.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""How connections are made, where the URL does not say otherwise."""

LONGEST_SCHEMA = 40
"""Characters: a schema's name becomes part of a channel's, which has 63."""


@dataclass(frozen=True, slots=True)
class Target:
    """A database, and the schemas in it."""

    conninfo: str = field(repr=False)
    """For the driver. It may hold a password."""
    schema: str
    """Where raincheck's tables are."""
    jobs_schema: str
    """Where Procrastinate's are."""
    shown: str
    """The URL as it may be shown, without a password."""


def parse_url(url: str) -> Target:
    """What the URL means. Two of its parameters are ours: `schema`, and `procrastinate_schema`.

    Raises:
        ConfigurationError: it can't be understood. The message does not repeat it: it may hold a password.
    """
    try:
        parts = urlsplit(url)
        parameters = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        ours = {name: value for name, value in parameters if name in ("schema", "procrastinate_schema")}
        theirs = [(name, value) for name, value in parameters if name not in ours]
        # By hand: `urlunsplit` leaves out the slashes of a URL without a host, which is one over a Unix socket.
        conninfo = f"postgresql://{parts.netloc}{parts.path}?{urlencode(theirs, quote_via=quote)}"
        facts = conninfo_to_dict(conninfo)
        _check_unmixed(facts)
        conninfo = make_conninfo(conninfo, **{name: value for name, value in SETTINGS.items() if name not in facts})
    except (ValueError, psycopg.Error) as error:
        # Of its words, only what can't be a password.
        unknown = re.search(r'query parameter: "(\w+)"', str(error))
        why = f"it has a parameter {unknown[1]!r} that there is not" if unknown else type(error).__name__
        raise ConfigurationError(
            f"the URL of the PostgreSQL store can't be understood ({why}): write "
            f"postgresql://user:password@host:5432/database, with %40 for an @ in the password, and %2F for a /"
        ) from None
    schema = _checked(ours.get("schema", DEFAULT_SCHEMA))
    jobs_schema = _checked(ours.get("procrastinate_schema", schema))
    place = ":".join(str(facts[name]) for name in ("host", "port") if facts.get(name))
    return Target(conninfo, schema, jobs_schema, f"postgresql://{place}/{facts.get('dbname') or ''}")


def _check_unmixed(facts: Mapping[str, object]) -> None:
    """Refuse a password that was taken for something else, which would then be shown: it has a `/` or an `@`."""
    shown = f"{facts.get('host', '')}{facts.get('dbname', '')}"
    if "@" in shown or not re.fullmatch(r"[\d,]*", str(facts.get("port") or "")):
        raise ValueError


def _checked(schema: str) -> str:
    if not schema or len(schema.encode()) > LONGEST_SCHEMA or not schema.isprintable():
        raise ConfigurationError(
            f"{schema!r} can't be the schema of a store: write a name of 1 to {LONGEST_SCHEMA} characters"
        )
    return schema
