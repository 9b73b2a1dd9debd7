"""Every requirement has tests or a reason to have none, and tests are marked only with known requirements."""

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT

FILES = sorted((Path(__file__).parent / "requirements").glob("*.toml"))
MANIFESTS = [tomllib.loads(file.read_text(encoding="utf-8")) for file in FILES]
REQUIREMENTS: list[dict[str, Any]] = [one for manifest in MANIFESTS for one in manifest["requirement"]]
IDS = [one["id"] for one in REQUIREMENTS]

LEVELS = {"MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "CHECK"}
FIELDS = {"id", "level", "who", "section", "text"}


def _tests_in(nodes: list[ast.stmt], prefix: str, marked: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Every test in a module, with the requirements that it or its class is marked with."""
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            yield from _tests_in(node.body, f"{prefix}{node.name}::", marked | _marks_of(node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            yield f"{prefix}{node.name}", marked | _marks_of(node)


def _marks_of(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str]:
    calls = [one for one in node.decorator_list if isinstance(one, ast.Call)]
    marks = [call for call in calls if ast.unparse(call.func) == "pytest.mark.requirement"]
    return frozenset(ast.literal_eval(argument) for mark in marks for argument in mark.args)


def _find_tests(folder: Path) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for file in sorted(folder.glob("tests/**/test_*.py")):
        module = ast.parse(file.read_text(encoding="utf-8"))
        found |= _tests_in(module.body, f"{file.relative_to(folder).as_posix()}::", frozenset())
    return found


TESTS = _find_tests(ROOT)


def test_every_requirement_has_an_id_of_its_own() -> None:
    assert [name for name, count in Counter(IDS).items() if count > 1] == []


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=IDS)
def test_a_requirement_has_tests_or_a_reason_to_have_none(requirement: dict[str, Any]) -> None:
    assert requirement.keys() - {"suite", "tests", "excluded"} == FIELDS
    assert requirement["level"] in LEVELS
    assert requirement["who"] in {"server", "client", "host"}
    assert bool(requirement.get("tests")) != bool(requirement.get("excluded")), (
        "name its tests, or say why there are none"
    )


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=IDS)
def test_a_requirements_tests_are_those_that_are_marked_with_it(requirement: dict[str, Any]) -> None:
    marked = {test for test, ids in TESTS.items() if requirement["id"] in ids}
    named = requirement.get("tests", [])
    assert len(named) == len(set(named))
    assert set(named) - TESTS.keys() == set(), "no such tests"
    assert set(named) == marked, "the manifest and the marks differ"


def test_tests_are_marked_only_with_known_requirements() -> None:
    assert {(test, one) for test, ids in TESTS.items() for one in ids if one not in IDS} == set()


@pytest.mark.parametrize("manifest", MANIFESTS, ids=[file.stem for file in FILES])
def test_every_check_of_the_official_suite_has_its_requirement(manifest: dict[str, Any]) -> None:
    assert {one["suite"] for one in manifest["requirement"] if "suite" in one} == set(manifest["checks"])


def test_marks_are_found_on_functions_and_on_classes(tmp_path: Path) -> None:
    file = tmp_path / "tests/server/test_some.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        "import pytest\n"
        "@pytest.mark.requirement('a', 'b')\nasync def test_one(): ...\n"
        "@pytest.mark.requirement('c')\nclass TestSome:\n"
        "    @pytest.mark.anyio\n    @pytest.mark.requirement('d')\n    def test_two(self): ...\n"
        "    def helper(self): ...\n"
        "def test_three(): ...\n"
    )
    assert _find_tests(tmp_path) == {
        "tests/server/test_some.py::test_one": {"a", "b"},
        "tests/server/test_some.py::TestSome::test_two": {"c", "d"},
        "tests/server/test_some.py::test_three": frozenset(),
    }
