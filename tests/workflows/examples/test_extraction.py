"""The example of a long extraction: pages that fail are tried again, some may be missing, and not too many."""

import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from raincheck import ToolError
from raincheck.core.lifecycle import Phase
from tests.support.workflows.example_files import ExampleBench

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


@pytest.fixture
def extraction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExampleBench:
    bench = ExampleBench(tmp_path / "examples", "extraction")
    bench.exchange("backoff: 2s", "backoff: 0.01s")
    # As the command line does it: what a file calls lies beside it.
    monkeypatch.setattr(sys, "path", [str(bench.folder), *sys.path])
    monkeypatch.delitem(sys.modules, "extraction_worker", raising=False)
    return bench


@pytest.fixture
def worker(extraction: ExampleBench) -> ModuleType:
    del extraction
    return import_module("extraction_worker")


def page(extraction: ExampleBench, number: int) -> Path:
    return extraction.folder / "pages" / "ledger" / f"page-{number:02}.txt"


async def test_all_pages_are_read_and_summed_up(extraction: ExampleBench) -> None:
    async with extraction.working():
        task = await extraction.begin(book="ledger")
        view, result = await extraction.end(task.id)
    assert view.task.phase is Phase.COMPLETED
    assert task.subject == "ledger"
    # 1.50 to 12.50, and 3.25 on each.
    assert result == {"pages": 12, "amounts": 24, "total": 123.0, "missing": []}


async def test_a_page_that_can_be_read_at_the_third_try_is_not_missing(
    extraction: ExampleBench, worker: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: Counter[str] = Counter()
    read = worker.read

    def read_late(one: Path) -> str:
        tries[one.name] += 1
        if one.name == "page-07.txt" and tries[one.name] < 3:
            raise ToolError("the scanner has it still open")
        return str(read(one))

    monkeypatch.setattr(worker, "read", read_late)
    async with extraction.working():
        _, result = await extraction.end((await extraction.begin(book="ledger")).id)
    assert isinstance(result, dict)
    assert (result["pages"], result["missing"]) == (12, [])
    assert tries == {f"page-{number:02}.txt": 3 if number == 7 else 1 for number in range(1, 13)}


async def test_one_unreadable_page_of_twelve_is_told_of_and_the_rest_is_summed_up(extraction: ExampleBench) -> None:
    page(extraction, 4).write_text("")
    async with extraction.working():
        view, result = await extraction.end((await extraction.begin(book="ledger")).id)
    assert view.task.phase is Phase.COMPLETED
    assert not view.task.is_error
    assert isinstance(result, dict)
    assert (result["pages"], result["amounts"]) == (11, 22)
    assert result["missing"] == [
        {"index": 3, "error": {"kind": "python", "message": "page-04.txt is empty: scan it again"}}
    ]


async def test_two_unreadable_pages_of_twelve_are_too_many(extraction: ExampleBench) -> None:
    for number in (4, 9):
        page(extraction, number).write_text("")
    async with extraction.working():
        view, result = await extraction.end((await extraction.begin(book="ledger")).id)
    assert view.task.is_error
    assert "step 'extract' failed (python)" in str(result)
    assert "2 of 12 items failed, the first at index 3: page-04.txt is empty" in str(result)


async def test_a_book_that_is_not_there_is_an_error_that_says_so(extraction: ExampleBench) -> None:
    async with extraction.working():
        view, result = await extraction.end((await extraction.begin(book="nothing")).id)
    assert view.task.is_error
    assert "there is no book 'nothing', or it has no pages" in str(result)


async def test_an_engine_that_stops_in_the_middle_leaves_what_it_has_read_to_the_next_one(
    extraction: ExampleBench, worker: ModuleType, monkeypatch: pytest.MonkeyPatch
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
    extraction.exchange("backoff: 0.01s", "backoff: 1s")
    async with extraction.working() as engine:
        task = await extraction.begin(book="ledger")
        await engine.wait(task.id, until=lambda one: one.phase is Phase.PARKED)
    async with extraction.working():
        _, result = await extraction.end(task.id)
    assert isinstance(result, dict)
    assert result["pages"] == 12
    assert tries == {f"page-{number:02}.txt": 2 if number == 9 else 1 for number in range(1, 13)}
