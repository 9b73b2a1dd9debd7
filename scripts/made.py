"""Files that are made of something else as a whole."""

from collections.abc import Iterator
from pathlib import Path

from raincheck.workflows import load
from scripts import shapes


def files(root: Path) -> Iterator[tuple[Path, str]]:
    """Each with what it should say."""
    yield from ((module, shapes.write(module)) for module in sorted(root.glob("src/raincheck/wire/*_types.py")))
    yield from ((file, load.schema_text()) for file in root.glob("src/raincheck/workflows/schema.json"))
