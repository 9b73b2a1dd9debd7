"""The generated types match the pinned schemas, and a mismatch is detected."""

from pathlib import Path
from typing import Any

import pytest

from raincheck.wire import v2026_types
from scripts import generate, wire_types
from tests.support.schemas import definitions

MODULES = sorted((generate.ROOT / "src/raincheck/wire").glob("*_types.py"))


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_the_shapes_are_up_to_date(module: Path) -> None:
    assert module.read_text(encoding="utf-8") == wire_types.write(module), "run scripts/check --fix"


def test_every_module_of_shapes_is_there() -> None:
    assert {module.stem for module in MODULES} == set(wire_types.MODULES)


PLAIN = [
    *("Error", "Task", "WorkingTask", "InputRequiredTask", "CompletedTask", "FailedTask", "CancelledTask"),
    "InputRequiredResult",
]


@pytest.mark.parametrize("name", PLAIN)
def test_a_shape_has_the_fields_of_its_schema_and_wants_the_same_ones(name: str) -> None:
    known = definitions("mcp-2026-07-28") | definitions("tasks-2026-07-28")
    shape: Any = getattr(v2026_types, name)
    assert shape.__annotations__.keys() == known[name]["properties"].keys()
    assert shape.__required_keys__ == frozenset(known[name]["required"])


def test_a_union_or_intersection_has_the_fields_of_all_its_members() -> None:
    shape: Any = v2026_types.CreateTaskResult
    wanted = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "resultType"}
    assert shape.__required_keys__ == wanted
    assert shape.__optional_keys__ == {"statusMessage", "pollIntervalMs", "_meta"}
    assert v2026_types.DetailedTask.__args__ == (
        v2026_types.WorkingTask,
        v2026_types.InputRequiredTask,
        v2026_types.CompletedTask,
        v2026_types.FailedTask,
        v2026_types.CancelledTask,
    )


def test_a_stale_generated_module_fails_the_check_and_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = tmp_path / "src/raincheck/wire/v2026_types.py"
    module.parent.mkdir(parents=True)
    module.write_text("class Task: ...\n")
    (tmp_path / "README.md").write_text("nothing generated\n")
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    assert generate.main(["--check"]) == 1
    assert capsys.readouterr().err == "src/raincheck/wire/v2026_types.py is out of date: run scripts/check --fix\n"
    assert generate.main([]) == 0
    assert module.read_text() == (wire_types.ROOT / "src/raincheck/wire/v2026_types.py").read_text()
