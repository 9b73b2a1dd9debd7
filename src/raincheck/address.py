"""Stores are named by URL: `memory:`, a path, `sqlite:///relative.db`, `sqlite:////absolute.db`, `postgresql://…`."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from raincheck.errors import ConfigurationError

EXAMPLES = (
    "memory:, tasks.db, sqlite:///tasks.db (relative), sqlite:////var/lib/tasks.db (absolute), postgresql://host/db"
)


@dataclass(frozen=True, slots=True)
class MemoryAddress:
    """Tasks in this process."""


@dataclass(frozen=True, slots=True)
class SqliteAddress:
    """Tasks in a file."""

    path: Path


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """Tasks in a PostgreSQL database."""

    url: str


Address: TypeAlias = MemoryAddress | SqliteAddress | PostgresAddress
Scheme: TypeAlias = Literal["memory", "sqlite", "postgresql"]


def parse_address(text: str) -> Address:
    """What a store's URL or path means.

    Raises:
        ConfigurationError: it can't be understood; the message shows what can.
    """
    if not text.strip():
        raise ConfigurationError(f"the store's name is empty: name one, such as {EXAMPLES}")
    # One letter before the colon is a drive of Windows, not a scheme.
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", text)
    if match is None:
        return SqliteAddress(Path(text).expanduser())
    match match[1].lower():
        case "memory":
            return _parse_memory(text)
        case "sqlite":
            return _parse_sqlite(text)
        case "postgresql" | "postgres":
            return PostgresAddress(text)
        case scheme:
            raise ConfigurationError(f"{text!r} names a store of an unknown kind {scheme!r}: use one of {EXAMPLES}")


def _parse_memory(text: str) -> MemoryAddress:
    if text.lower() not in ("memory:", "memory://"):
        raise ConfigurationError(f"{text!r} says more than memory: can mean: write just 'memory:'")
    return MemoryAddress()


def _parse_sqlite(text: str) -> SqliteAddress:
    parts = urlsplit(text)
    if parts.netloc or not parts.path.startswith("/") or not text.lower().startswith("sqlite:///"):
        raise ConfigurationError(
            f"{text!r} is not a path in a URL: write three slashes and a relative path (sqlite:///tasks.db), "
            f"or four for an absolute one (sqlite:////var/lib/tasks.db)"
        )
    if parts.query or parts.fragment:
        raise ConfigurationError(f"{text!r} has options after its path, and a SQLite store takes none: leave them out")
    path = unquote(parts.path[1:])
    if not path:
        raise ConfigurationError(f"{text!r} names no file: write sqlite:///tasks.db")
    return SqliteAddress(Path(path))
