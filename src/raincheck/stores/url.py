"""Parse store names: `memory:`, a path, `sqlite:///relative.db`, `sqlite:////absolute.db`, `postgresql://…`."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, get_args
from urllib.parse import unquote

from raincheck.errors import ConfigurationError

EXAMPLES = "memory:, tasks.db, sqlite:///tasks.db (relative), sqlite:////var/lib/tasks.db (absolute), postgresql://host/database"

Synchronous: TypeAlias = Literal["FULL", "NORMAL"]
"""SQLite's sync mode for commits: FULL survives a power loss, NORMAL is faster."""

_SQLITE_MEMORY = ":memory:"
_WRITE_MEMORY = "':memory:' is SQLite's own name: for tasks in memory write 'memory:'"


@dataclass(frozen=True, slots=True)
class MemoryAddress:
    """Tasks in this process."""


@dataclass(frozen=True, slots=True)
class SqliteAddress:
    """Tasks in a file."""

    path: Path
    synchronous: Synchronous = "FULL"


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """Tasks in a PostgreSQL database. Its URL may contain a password, so it is not shown."""

    url: str = field(repr=False)


Address: TypeAlias = MemoryAddress | SqliteAddress | PostgresAddress


def parse_address(text: str) -> Address:
    """Parse a store's URL or path.

    Raises:
        ConfigurationError: it can't be parsed; the message lists the valid forms.
    """
    if not text.strip():
        raise ConfigurationError(f"the store's name is empty: name one, such as {EXAMPLES}")
    if any(ord(character) < ord(" ") for character in text):
        raise ConfigurationError(f"the store's name has control characters: name one such as {EXAMPLES}")
    # One letter before the colon is a Windows drive, not a scheme.
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", text)
    if match is None:
        return SqliteAddress(_path(text))
    match match[1].lower():
        case "memory":
            if text.lower() not in ("memory:", "memory://"):
                raise ConfigurationError(f"{text!r} has text after its scheme: write just 'memory:'")
            return MemoryAddress()
        case "sqlite":
            return _parse_sqlite(text)
        case "postgresql" | "postgres":
            return PostgresAddress(text)
        case scheme:
            # The rest of it is not repeated: it may contain a password.
            raise ConfigurationError(f"the store has an unknown kind {scheme!r}: use one of {EXAMPLES}")


def _parse_sqlite(text: str) -> SqliteAddress:
    if text.endswith(_SQLITE_MEMORY):
        raise ConfigurationError(_WRITE_MEMORY)
    rest = text[len("sqlite:") :]
    if not rest.startswith("///"):
        raise ConfigurationError(
            "a SQLite store is named by a path in a URL: write three slashes and a relative path (sqlite:///tasks.db), "
            "or four for an absolute one (sqlite:////var/lib/tasks.db)"
        )
    path, mark, options = rest.removeprefix("///").partition("?")
    if "#" in rest:
        raise ConfigurationError(f"{text!r} has a fragment after its path: remove it, or write # as %23")
    if not path:
        raise ConfigurationError(f"{text!r} names no file: write sqlite:///tasks.db")
    return SqliteAddress(_path(unquote(path)), _synchronous(text, options) if mark else "FULL")


def _synchronous(text: str, options: str) -> Synchronous:
    for mode in get_args(Synchronous):
        if options.upper() == f"SYNCHRONOUS={mode}":
            return mode
    raise ConfigurationError(
        f"{text!r} has unsupported options: a SQLite store takes only synchronous=FULL (the default) "
        "or synchronous=NORMAL; remove the rest"
    )


def _path(text: str) -> Path:
    if "\0" in text:
        raise ConfigurationError(f"{text!r} can't be a path: remove its NUL character")
    if text == _SQLITE_MEMORY:
        raise ConfigurationError(_WRITE_MEMORY)
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ConfigurationError(f"{text!r} can't be expanded ({error}): write the path without the tilde") from error
