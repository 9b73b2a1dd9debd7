"""The pages that the tests of the docs look at."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.support import ROOT

PAGES = sorted(
    [*ROOT.glob("docs/**/*.md"), *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"))]
)

PROGRAMS = {file.read_text(encoding="utf-8") for file in ROOT.glob("docs_src/*.py")}
"""What is shown as a whole file: `test_docs_src.py` runs these."""

_GENERATED = re.compile(r"<!-- generated: .*?<!-- end -->", re.DOTALL)
_CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose_of(page: Path) -> str:
    """The page without its blocks of code."""
    return _CODE.sub("", text_of(page))


def snippets_of(page: Path) -> Iterator[tuple[int, str]]:
    """The Python on a page that was written by hand, each with its line.

    What is generated, or a whole program, is checked elsewhere.
    """
    text = _GENERATED.sub(lambda part: "\n" * part[0].count("\n"), text_of(page))
    for match in _PYTHON.finditer(text):
        if match[1] in PROGRAMS:
            continue
        yield text.count("\n", 0, match.start(1)) + 1, match[1]
