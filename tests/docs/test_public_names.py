"""Docs, programs and examples import public names only, and the reference lists every public name."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from scripts.public_names import PACKAGES, names_of

from tests.support.docs.pages import PAGES, ROOT, name_of, text_of

API = ROOT / "docs/reference/public-api.md"
PROGRAMS = sorted(file for folder in ("docs_src", "examples", "deploy") for file in (ROOT / folder).rglob("*.py"))
PYTHON = re.compile(r"^ *```(?:python|py)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
IMPORT = re.compile(r"^ *((?:from|import) raincheck\b[^(\n#]*(?:\([^)]*\))?)", re.MULTILINE)
INLINE = re.compile(r"`((?:from|import) raincheck[^`\n]*)`")


def imports_of_page(text: str) -> list[str]:
    """Return the import statements of raincheck that a page shows: in its code, also generated, and in its prose."""
    shown = [match[1] for block in PYTHON.finditer(text) for match in IMPORT.finditer(block[1])]
    return shown + [match[1] for match in INLINE.finditer(text)]


def imports_of_code(code: str) -> list[str]:
    return [ast.unparse(node) for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Import | ast.ImportFrom)]


def internal_names(statement: str) -> Iterator[str]:
    """Yield what an import statement imports of raincheck that is not public."""
    (node,) = ast.parse(statement).body
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if is_ours(alias.name) and alias.name not in PACKAGES)
    elif isinstance(node, ast.ImportFrom) and is_ours(node.module or ""):
        for alias in node.names:
            is_name = node.module in PACKAGES and alias.name in names_of(node.module)
            if not is_name and f"{node.module}.{alias.name}" not in PACKAGES:
                yield f"{node.module}.{alias.name}"


def is_ours(module: str) -> bool:
    return module.partition(".")[0] == "raincheck"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_imports_only_public_names(page: Path) -> None:
    assert [name for statement in imports_of_page(text_of(page)) for name in internal_names(statement)] == []


@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_a_program_of_the_docs_imports_only_public_names(program: Path) -> None:
    assert [name for statement in imports_of_code(text_of(program)) for name in internal_names(statement)] == []


def test_pages_and_programs_with_imports_are_found() -> None:
    assert len([page for page in PAGES if imports_of_page(text_of(page))]) > 20
    assert ROOT / "docs_src/toy_store.py" in PROGRAMS
    assert ROOT / "deploy/reports.py" in PROGRAMS


@pytest.mark.parametrize(
    ("shown", "internal"),
    [
        ("```python\nimport raincheck.engine\n```", ["raincheck.engine"]),
        ("```python\nfrom raincheck import Engine, engine, stores\n```", ["raincheck.engine"]),
        ("```python\nfrom raincheck.core.owner import (\n    Owner,\n    Scope,\n)\n```", ["Owner", "Scope"]),
        ("```python\ndef f():\n    from raincheck.errors import LeaseLost\n```", ["raincheck.errors.LeaseLost"]),
        ("Use `from raincheck.core.values import decode`.", ["raincheck.core.values.decode"]),
        ("```python\nfrom raincheck.stores import Scope\nimport raincheckers\n```", []),
    ],
)
def test_an_import_of_an_internal_name_is_found(shown: str, internal: list[str]) -> None:
    found = [name for statement in imports_of_page(shown) for name in internal_names(statement)]
    assert len(found) == len(internal)
    assert all(name.endswith(expected) for name, expected in zip(found, internal, strict=True))


def listed_names() -> dict[str, list[str]]:
    """Return the names that the reference lists for each package."""
    sections = re.split(r"^# (raincheck[\w.]*)$", text_of(API), flags=re.MULTILINE)
    return {
        package: re.findall(r"^\| `(\w+)` \| .", section, re.MULTILINE)
        for package, section in zip(sections[1::2], sections[2::2], strict=True)
    }


def test_the_reference_lists_every_public_package() -> None:
    assert list(listed_names()) == list(PACKAGES)
    assert all(f"| [`{package}`](#" in text_of(API) for package in PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_reference_lists_every_public_name_and_no_other(package: str) -> None:
    assert listed_names()[package] == names_of(package)


def test_a_name_that_two_packages_export_is_the_same_in_both() -> None:
    # Except for the mirror for FastMCP.
    packages = [package for package in PACKAGES if package != "raincheck.fastmcp"]
    meanings: defaultdict[str, list[object]] = defaultdict(list)
    for package in packages:
        for name in names_of(package):
            meanings[name].append(getattr(import_module(package), name))
    assert [name for name, (first, *others) in meanings.items() if any(other is not first for other in others)] == []


def test_internal_packages_refer_to_the_public_one() -> None:
    for package in ("raincheck.engine", "raincheck.server"):
        assert "Internal: " in (import_module(package).__doc__ or "")
