"""The example of a nightly export: imported in the end, refused, or never uploaded, and told of in any case."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from examples.workflows.warehouse import Warehouse

from raincheck.core.lifecycle import Phase
from tests.support.workflows.example_files import ExampleBench

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]


@pytest.fixture
def warehouse() -> Iterator[Warehouse]:
    server = Warehouse(0, looks=3)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    yield server
    server.shutdown()
    serving.join()
    server.server_close()


@pytest.fixture
def export(tmp_path: Path, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> ExampleBench:
    monkeypatch.setenv("WAREHOUSE_TOKEN", "secret")
    bench = ExampleBench(tmp_path / "examples", "export")
    bench.exchange("8765", str(warehouse.server_port))
    for wait in ("every: 1m", "backoff: 30s", "backoff: 10s"):
        bench.exchange(wait, f"{wait.split(':')[0]}: 0.01s")
    return bench


async def test_the_rows_are_uploaded_imported_and_told_of(export: ExampleBench, warehouse: Warehouse) -> None:
    async with export.working() as engine:
        task = await export.begin(day="2026-03-01")
        view, result = await export.end(task.id)
        rows = await engine.artifact(task.id, "rows")
    assert view.task.phase is Phase.COMPLETED
    assert result == {"day": "2026-03-01", "rows": 3, "told": True}
    sent = [json.loads(line) for line in warehouse.uploads["2026-03-01"].splitlines()]
    assert [row["order"] for row in sent] == [1, 2, 3]
    assert isinstance(rows, dict)
    assert rows["stdout"] == warehouse.uploads["2026-03-01"]
    assert warehouse.imports == [3], "it was asked for until it was done"
    assert warehouse.messages == ["Export of 2026-03-01: done, errors: none"]


async def test_a_warehouse_that_is_busy_is_tried_again(export: ExampleBench, warehouse: Warehouse) -> None:
    warehouse.busy = 4
    async with export.working():
        view, result = await export.end((await export.begin(day="2026-03-01")).id)
    assert not view.task.is_error, result
    assert warehouse.busy == 0


async def test_an_upload_that_never_gets_through_is_told_of_and_fails(
    export: ExampleBench, warehouse: Warehouse
) -> None:
    warehouse.busy = 100
    async with export.working():
        view, result = await export.end((await export.begin(day="2026-03-01")).id)
    assert view.task.is_error
    assert "step 'was-imported' failed (exit)" in str(result)
    assert warehouse.busy == 95, "five tries"
    assert warehouse.imports == []
    assert warehouse.messages == ["Export of 2026-03-01: not imported, errors: it answered with status 503"]


async def test_an_import_that_the_warehouse_refuses_is_told_of_and_fails(
    export: ExampleBench, warehouse: Warehouse
) -> None:
    warehouse.end = "refused"
    async with export.working():
        view, _ = await export.end((await export.begin(day="2026-03-01")).id)
    assert view.task.is_error
    assert warehouse.messages == ["Export of 2026-03-01: refused, errors: none"]


async def test_an_import_that_never_ends_is_given_up(export: ExampleBench, warehouse: Warehouse) -> None:
    export.exchange("max_rounds: 180", "max_rounds: 4")
    warehouse.looks = 5
    async with export.working():
        view, _ = await export.end((await export.begin(day="2026-03-01")).id)
    assert view.task.is_error
    (message,) = warehouse.messages
    assert message.endswith("did not hold after 4 rounds")


async def test_rows_that_can_not_be_had_are_told_of_and_fail(export: ExampleBench, warehouse: Warehouse) -> None:
    (export.folder / "export_rows.py").write_text("raise SystemExit('no database')\n")
    async with export.working():
        view, _ = await export.end((await export.begin(day="2026-03-01")).id)
    assert view.task.is_error
    assert warehouse.uploads == {}
    assert warehouse.messages == ["Export of 2026-03-01: not imported, errors: exit code 1: no database"]


async def test_the_secret_is_not_kept_with_the_task(export: ExampleBench) -> None:
    async with export.working():
        await export.end((await export.begin(day="2026-03-01")).id)
    kept = b"".join(file.read_bytes() for file in export.folder.glob("tasks.db*"))
    assert b"2026-03-01" in kept
    assert b"Bearer secret" not in kept
