"""Named queries, kept in `.sql` files: a line `-- name: …`, a sentence, the statement."""

import re
from importlib.resources.abc import Traversable

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def load_queries(file: Traversable) -> dict[str, str]:
    """The statements of a file, by name."""
    _, *parts = _NAME.split(file.read_text(encoding="utf-8"))
    return {name: _statement(text) for name, text in zip(parts[::2], parts[1::2], strict=True)}


def _statement(text: str) -> str:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return "\n".join(lines).strip().removesuffix(";")
