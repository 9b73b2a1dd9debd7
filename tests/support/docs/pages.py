"""The pages of the docs, and functions that read them."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.support import ROOT

PAGES = sorted(
    [*ROOT.glob("docs/**/*.md"), *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"))]
)

PROGRAMS = {file.read_text(encoding="utf-8") for file in ROOT.glob("docs_src/*.py")}
"""Programs that pages show as whole files, and that `test_docs_src.py` runs."""

_GENERATED = re.compile(r"<!-- generated: .*?<!-- end -->", re.DOTALL)
_CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose_of(page: Path) -> str:
    """Return the page without its code blocks."""
    return _CODE.sub("", text_of(page))


def snippets_of(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the handwritten Python snippets of a page with their lines.

    Generated snippets and whole programs are tested elsewhere.
    """
    text = _GENERATED.sub(lambda part: "\n" * part[0].count("\n"), text_of(page))
    for match in _PYTHON.finditer(text):
        if match[1] in PROGRAMS:
            continue
        yield text.count("\n", 0, match.start(1)) + 1, match[1]
