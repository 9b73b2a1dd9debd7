"""Named queries, kept in `.sql` files: a line `-- name: …`, a sentence, the statement."""

import re
from importlib.resources.abc import Traversable

from raincheck.errors import ConfigurationError

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def load_queries(file: Traversable) -> dict[str, str]:
    """The statements of a file, by name."""
    _, *parts = _NAME.split(file.read_text(encoding="utf-8"))
    names = parts[::2]
    if len(set(names)) < len(names):
        twice = sorted(name for name in set(names) if names.count(name) > 1)
        raise ConfigurationError(f"{file.name} has several queries of one name: {', '.join(twice)}")
    return {name: _statement(text) for name, text in zip(names, parts[1::2], strict=True)}


def _statement(text: str) -> str:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(lines).strip().removesuffix(";")
