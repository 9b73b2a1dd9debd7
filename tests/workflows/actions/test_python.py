"""Steps that call Python functions."""

import sys
from pathlib import Path

import pytest

from raincheck.workflows import InvalidWorkflow
from tests.support.workflows import step_functions
from tests.support.workflows.harness import WorkflowHarness

pytestmark = pytest.mark.anyio


def flow(function: str, more: str = "") -> str:
    return f"workflows: {{flow: {{steps: [{{id: a, python: '{step_functions.__name__}:{function}', {more}}}]}}}}"


async def test_a_coroutine_is_awaited(workflow_harness: WorkflowHarness) -> None:
    assert await workflow_harness.run(flow("double", "with: {n: '{{ 3 }}'}")) == 6


async def test_a_plain_function_is_called_in_a_thread(workflow_harness: WorkflowHarness) -> None:
    assert await workflow_harness.run(flow("where", "with: {n: 3}")) == [3, False]


async def test_a_tool_error_is_reported_to_the_caller(workflow_harness: WorkflowHarness) -> None:
    assert (await workflow_harness.failure(flow("refuse", "with: {why: not today}"))).endswith("not today")


async def test_any_other_error_is_reported_by_an_id_without_its_content(workflow_harness: WorkflowHarness) -> None:
    message = await workflow_harness.failure(flow("fail"))
    assert "it raised RuntimeError: ask its operator about error" in message
    assert "hunter2" not in message


@pytest.mark.parametrize("function", ["leave", "leave_in_a_thread"])
async def test_a_function_that_ends_its_program_ends_only_its_step(
    workflow_harness: WorkflowHarness, function: str
) -> None:
    assert "it raised SystemExit: ask its operator" in await workflow_harness.failure(flow(function))


async def test_a_file_does_not_take_the_place_of_an_installed_module(
    workflow_harness: WorkflowHarness, tmp_path: Path
) -> None:
    write_module(tmp_path, "statistics.py", "raise RuntimeError('a caller wrote this')")
    mean = "workflows: {flow: {steps: [{id: a, python: 'statistics:mean', with: {data: [1, 3]}}]}}"
    assert await workflow_harness.run(mean) == 2


async def test_a_result_that_is_not_json_is_an_error(workflow_harness: WorkflowHarness) -> None:
    assert "can't be written as JSON" in await workflow_harness.failure(flow("no_json"))


FLOW = "workflows: {flow: {steps: [{id: a, python: 'MODULE:f'}]}}"


def write_module(folder: Path, path: str, text: str) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(text)


async def test_a_module_beside_the_file_is_loaded_without_a_change_of_the_path(
    workflow_harness: WorkflowHarness,
) -> None:
    before = list(sys.path)
    write_module(workflow_harness.folder, "prices.py", "AMOUNT = 3")
    write_module(workflow_harness.folder, "shop.py", "from . import prices\nf = lambda: prices.AMOUNT")
    assert await workflow_harness.run(FLOW.replace("MODULE", "shop")) == 3
    assert sys.path == before
    assert "shop" not in sys.modules


async def test_a_file_in_the_folder_is_not_imported_in_the_place_of_a_library(
    workflow_harness: WorkflowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller may have written it, through a step. `h2` is what an HTTP client looks for, and does not need."""
    monkeypatch.chdir(workflow_harness.folder)
    write_module(workflow_harness.folder, "shop.py", "def f():\n    import h2")
    write_module(workflow_harness.folder, "h2.py", "open('PWNED', 'w')\nraise ImportError")
    await workflow_harness.failure(FLOW.replace("MODULE", "shop"))
    assert not (workflow_harness.folder / "PWNED").exists()


async def test_a_module_in_a_package_beside_the_file_is_loaded(workflow_harness: WorkflowHarness) -> None:
    write_module(workflow_harness.folder, "json/__init__.py", "")
    write_module(workflow_harness.folder, "json/shop.py", "from .prices import AMOUNT\nf = lambda: AMOUNT")
    write_module(workflow_harness.folder, "json/prices.py", "AMOUNT = 4")
    assert await workflow_harness.run(FLOW.replace("MODULE", "json.shop")) == 4


async def test_modules_of_the_same_name_beside_two_files_are_two_modules(
    workflow_harness: WorkflowHarness, tmp_path: Path
) -> None:
    write_module(workflow_harness.folder, "shop.py", "f = lambda: 1")
    write_module(tmp_path / "other", "shop.py", "f = lambda: 2")
    assert await workflow_harness.run(FLOW.replace("MODULE", "shop")) == 1
    assert await WorkflowHarness(tmp_path / "other").run(FLOW.replace("MODULE", "shop")) == 2


async def test_a_module_in_the_current_folder_is_loaded(
    workflow_harness: WorkflowHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_module(tmp_path / "here", "shop.py", "f = lambda: 5")
    monkeypatch.chdir(tmp_path / "here")
    assert await workflow_harness.run(FLOW.replace("MODULE", "shop")) == 5


async def test_a_module_that_python_finds_in_the_folder_is_the_one_of_the_program(
    workflow_harness: WorkflowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_module(workflow_harness.folder, "shop_of_the_program.py", "f = lambda: 6")
    monkeypatch.setattr(sys, "path", [str(workflow_harness.folder), *sys.path])
    assert await workflow_harness.run(FLOW.replace("MODULE", "shop_of_the_program")) == 6
    assert "shop_of_the_program" in sys.modules


def test_an_absolute_import_of_a_module_beside_it_is_explained(workflow_harness: WorkflowHarness) -> None:
    write_module(workflow_harness.folder, "prices.py", "AMOUNT = 3")
    write_module(workflow_harness.folder, "shop.py", "import prices")
    workflow_harness.write(FLOW.replace("MODULE", "shop"))
    with pytest.raises(InvalidWorkflow, match=r"import each other relatively: from \. import prices"):
        workflow_harness.load()
