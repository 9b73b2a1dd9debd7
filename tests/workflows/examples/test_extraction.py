"""The example of a long extraction: failed pages are retried, and only a few may be missing."""

import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from raincheck import ToolError
from raincheck.core.lifecycle import Phase
from tests.support.workflows.example_files import ExampleRunner

pytestmark = pytest.mark.anyio


@pytest.fixture
def extraction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExampleRunner:
    bench = ExampleRunner(tmp_path / "examples", "extraction")
    bench.replace_text("backoff: 2s", "backoff: 0.01s")
    # As in a program that has the folder on its path: the test and the workflow use the same module.
    monkeypatch.setattr(sys, "path", [str(bench.folder), *sys.path])
    monkeypatch.delitem(sys.modules, "extraction_worker", raising=False)
    return bench


@pytest.fixture
def worker(extraction: ExampleRunner) -> ModuleType:
    del extraction
    return import_module("extraction_worker")


def page(extraction: ExampleRunner, number: int) -> Path:
    return extraction.folder / "pages" / "ledger" / f"page-{number:02}.txt"


async def test_all_pages_are_read_and_summed_up(extraction: ExampleRunner) -> None:
    async with extraction.running():
        task = await extraction.submit(book="ledger")
        view, result = await extraction.wait_for_end(task.id)
    assert view.task.phase is Phase.COMPLETED
    assert task.subject == "ledger"
    # 1.50 to 12.50, and 3.25 on each.
    assert result == {"pages": 12, "amounts": 24, "total": 123.0, "missing": []}


async def test_a_page_that_is_readable_at_the_third_try_is_not_missing(
    extraction: ExampleRunner, worker: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: Counter[str] = Counter()
    read = worker.read

    def read_late(one: Path) -> str:
        tries[one.name] += 1
        if one.name == "page-07.txt" and tries[one.name] < 3:
            raise ToolError("the scanner has it still open")
        return str(read(one))

    monkeypatch.setattr(worker, "read", read_late)
    async with extraction.running():
        _, result = await extraction.wait_for_end((await extraction.submit(book="ledger")).id)
    assert isinstance(result, dict)
    assert (result["pages"], result["missing"]) == (12, [])
    assert tries == {f"page-{number:02}.txt": 3 if number == 7 else 1 for number in range(1, 13)}


async def test_one_unreadable_page_of_twelve_is_reported_and_the_rest_is_summed_up(extraction: ExampleRunner) -> None:
    page(extraction, 4).write_text("")
    async with extraction.running():
        view, result = await extraction.wait_for_end((await extraction.submit(book="ledger")).id)
    assert view.task.phase is Phase.COMPLETED
    assert not view.task.is_error
    assert isinstance(result, dict)
    assert (result["pages"], result["amounts"]) == (11, 22)
    assert result["missing"] == [
        {"index": 3, "error": {"kind": "python", "message": "page-04.txt is empty: scan it again"}}
    ]


async def test_two_unreadable_pages_of_twelve_are_too_many(extraction: ExampleRunner) -> None:
    for number in (4, 9):
        page(extraction, number).write_text("")
    async with extraction.running():
        view, result = await extraction.wait_for_end((await extraction.submit(book="ledger")).id)
    assert view.task.is_error
    assert "step 'extract' failed (python)" in str(result)
    assert "2 of 12 items failed, the first at index 3: page-04.txt is empty" in str(result)


async def test_a_missing_book_is_an_error_that_names_it(extraction: ExampleRunner) -> None:
    async with extraction.running():
        view, result = await extraction.wait_for_end((await extraction.submit(book="nothing")).id)
    assert view.task.is_error
    assert "there is no book 'nothing', or it has no pages" in str(result)


async def test_a_restarted_engine_keeps_the_pages_that_were_read(
    extraction: ExampleRunner, worker: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: Counter[str] = Counter()
    read = worker.read

    def read_until_the_ninth(one: Path) -> str:
        tries[one.name] += 1
        if one.name == "page-09.txt" and tries[one.name] == 1:
            raise ToolError("not yet")
        return str(read(one))

    monkeypatch.setattr(worker, "read", read_until_the_ninth)
    # Long enough to stop while one page waits for its next try, and all others are done.
    extraction.replace_text("backoff: 0.01s", "backoff: 1s")
    async with extraction.running() as engine:
        task = await extraction.submit(book="ledger")
        await engine.wait(task.id, until=lambda one: one.phase is Phase.PARKED)
    async with extraction.running():
        _, result = await extraction.wait_for_end(task.id)
    assert isinstance(result, dict)
    assert result["pages"] == 12
    assert tries == {f"page-{number:02}.txt": 2 if number == 9 else 1 for number in range(1, 13)}
