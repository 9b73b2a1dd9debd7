"""SQL from files: named queries, and the steps of a schema.

A named query is a line `-- name: …`, a sentence, and the statement. A step is a file `NNNN_name.sql`.
"""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from raincheck.errors import ConfigurationError

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def load_queries(file: Traversable) -> dict[str, str]:
    """Load the statements of a file, by name."""
    _, *parts = _NAME.split(file.read_text(encoding="utf-8"))
    names = parts[::2]
    if len(set(names)) < len(names):
        duplicates = sorted(name for name in set(names) if names.count(name) > 1)
        raise ConfigurationError(f"{file.name} has several queries of the same name: {', '.join(duplicates)}")
    return {name: _statement(text) for name, text in zip(names, parts[1::2], strict=True)}


def _statement(text: str) -> str:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(lines).strip().removesuffix(";")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of a schema: once applied, the schema has this version."""

    version: int
    name: str
    script: str


@cache
def load_migrations(package: str) -> tuple[Migration, ...]:
    """Load all steps of a store's package, oldest first, once: a store that is reopened may find no file descriptor."""
    folder = files(package) / "migrations"
    found = [
        Migration(int(match[1]), match[2], file.read_text(encoding="utf-8"))
        for file in folder.iterdir()
        if (match := re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name))
    ]
    return tuple(sorted(found, key=lambda migration: migration.version))
