"""Stores in a PostgreSQL database, as commands speak of them. What is secret in a URL is never shown."""

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from raincheck.address import MemoryAddress, PostgresAddress, SqliteAddress
from raincheck.cli.secrecy import HIDDEN, NAMES
from raincheck.opening import find_address, make_store

if TYPE_CHECKING:
    from raincheck.stores.postgres.address import Target

IS_DATABASE = re.compile("postgres(ql)?:", re.IGNORECASE)


def find_target(name: str | os.PathLike[str] | None) -> "Target | None":
    """The database that a store of this name is in; None if it is in none.

    Raises:
        ConfigurationError: its name can't be understood, or what it needs is not installed.
    """
    address = find_address(name)
    if not isinstance(address, PostgresAddress):
        return None
    # It says what to install.
    make_store(name)
    from raincheck.stores.postgres import parse_url

    return parse_url(address.url)


def shown_store(name: str | os.PathLike[str] | None) -> str:
    """Where the store of this name is, for whoever reads.

    Raises:
        ConfigurationError: its name can't be understood.
    """
    address = find_address(name)
    match address:
        case MemoryAddress():
            return "memory:"
        case SqliteAddress(path):
            return str(path.absolute())
        case PostgresAddress():
            target = find_target(name)
            return "" if target is None else target.shown


def typed_store(name: str) -> str:
    """A store as it is named in a command that somebody may type: without a password."""
    if not IS_DATABASE.match(name):
        return name
    parts = urlsplit(name)
    who, at, where = parts.netloc.rpartition("@")
    user, colon, _ = who.partition(":")
    if "@" in parts.path or (not at and ":" in where and not where.rpartition(":")[2].isdigit()):
        # Not where it belongs: a password with a slash in it, perhaps.
        return f"{parts.scheme}://{HIDDEN}"
    parameters = [
        (key, HIDDEN if NAMES.search(key) else value) for key, value in parse_qsl(parts.query, keep_blank_values=True)
    ]
    hidden = f"{user}{colon}{HIDDEN if colon else ''}{at}{where}"
    # Not by `urlunsplit`, which leaves out the slashes before a name that is not there.
    query = f"?{urlencode(parameters, quote_via=quote)}" if parameters else ""
    return f"{parts.scheme}://{hidden}{parts.path}{query}"
