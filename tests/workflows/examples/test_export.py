"""The example of a nightly export, which reports success and every kind of failure."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from examples.workflows.warehouse import Warehouse

from raincheck.core.lifecycle import Phase
from tests.support.workflows.example_files import ExampleRunner

pytestmark = pytest.mark.anyio


@pytest.fixture
def warehouse() -> Iterator[Warehouse]:
    server = Warehouse(0, polls_needed=3)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    yield server
    server.shutdown()
    serving.join()
    server.server_close()


@pytest.fixture
def export(tmp_path: Path, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> ExampleRunner:
    monkeypatch.setenv("WAREHOUSE_TOKEN", "secret")
    bench = ExampleRunner(tmp_path / "examples", "export")
    bench.replace_text("8765", str(warehouse.server_port))
    for wait in ("every: 1m", "backoff: 30s", "backoff: 10s"):
        bench.replace_text(wait, f"{wait.split(':')[0]}: 0.01s")
    return bench


async def test_the_rows_are_uploaded_imported_and_reported(export: ExampleRunner, warehouse: Warehouse) -> None:
    async with export.running() as engine:
        task = await export.submit(day="2026-03-01")
        view, result = await export.wait_for_end(task.id)
        rows = await engine.artifact(task.id, "rows")
    assert view.task.phase is Phase.COMPLETED
    assert result == {"day": "2026-03-01", "rows": 3, "notified": True}
    sent = [json.loads(line) for line in warehouse.uploads["2026-03-01"].splitlines()]
    assert [row["order"] for row in sent] == [1, 2, 3]
    assert isinstance(rows, dict)
    assert rows["stdout"] == warehouse.uploads["2026-03-01"]
    assert warehouse.imports == [3], "it was asked for until it was done"
    assert warehouse.messages == ["Export of 2026-03-01: done, errors: none"]


async def test_an_upload_to_a_busy_warehouse_is_retried(export: ExampleRunner, warehouse: Warehouse) -> None:
    warehouse.busy = 4
    async with export.running():
        view, result = await export.wait_for_end((await export.submit(day="2026-03-01")).id)
    assert not view.task.is_error, result
    assert warehouse.busy == 0


async def test_an_upload_that_never_succeeds_is_reported_and_fails(export: ExampleRunner, warehouse: Warehouse) -> None:
    warehouse.busy = 100
    async with export.running():
        view, result = await export.wait_for_end((await export.submit(day="2026-03-01")).id)
    assert view.task.is_error
    assert "step 'was-imported' failed (exit)" in str(result)
    assert warehouse.busy == 95, "five tries"
    assert warehouse.imports == []
    assert warehouse.messages == ["Export of 2026-03-01: not imported, errors: the server answered with status 503"]


async def test_an_import_that_the_warehouse_refuses_is_reported_and_fails(
    export: ExampleRunner, warehouse: Warehouse
) -> None:
    warehouse.end = "refused"
    async with export.running():
        view, _ = await export.wait_for_end((await export.submit(day="2026-03-01")).id)
    assert view.task.is_error
    assert warehouse.messages == ["Export of 2026-03-01: refused, errors: none"]


async def test_an_import_that_never_ends_fails_after_the_last_round(
    export: ExampleRunner, warehouse: Warehouse
) -> None:
    export.replace_text("max_rounds: 180", "max_rounds: 4")
    warehouse.polls_needed = 5
    async with export.running():
        view, _ = await export.wait_for_end((await export.submit(day="2026-03-01")).id)
    assert view.task.is_error
    (message,) = warehouse.messages
    assert message.endswith("was still false after 4 rounds")


async def test_rows_that_can_not_be_exported_are_reported_and_fail(export: ExampleRunner, warehouse: Warehouse) -> None:
    (export.folder / "export_rows.py").write_text("raise SystemExit('no database')\n")
    async with export.running():
        view, _ = await export.wait_for_end((await export.submit(day="2026-03-01")).id)
    assert view.task.is_error
    assert warehouse.uploads == {}
    assert warehouse.messages == ["Export of 2026-03-01: not imported, errors: exit code 1: no database"]


async def test_the_secret_is_not_stored_with_the_task(export: ExampleRunner) -> None:
    async with export.running():
        await export.wait_for_end((await export.submit(day="2026-03-01")).id)
    stored = b"".join(file.read_bytes() for file in export.folder.glob("tasks.db*"))
    assert b"2026-03-01" in stored
    assert b"Bearer secret" not in stored
