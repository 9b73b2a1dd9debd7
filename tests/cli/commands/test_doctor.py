"""Tests for `raincheck doctor`: its findings and exit codes."""

import os
import shutil
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from raincheck.core.commands import Complete, Park
from raincheck.core.records import Tool
from raincheck.core.values import encode
from raincheck.testing import FakeClock, StoreHarness
from tests.support.cli.operator import START, STORE, create_task_in_each_phase, in_store, lines, run_json

pytestmark = pytest.mark.usefixtures("folder")


async def nothing(_: StoreHarness) -> None: ...


def found(clock: FakeClock | None = None, exit_code: int = 0) -> dict[str, dict[str, Any]]:
    """What is found, by name."""
    printed = run_json("doctor", clock=clock, exit_code=exit_code)
    assert printed["store"] == str(Path(STORE).absolute())
    return {finding["name"]: finding for finding in printed["findings"]}


def verdicts(findings: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: finding["verdict"] for name, finding in findings.items() if finding["verdict"] != "ok"}


def test_a_healthy_store_is_ok_in_every_line() -> None:
    in_store(nothing)
    findings = found()
    assert verdicts(findings) == {}
    names = ["opens", "rights", "disk", "log", "schema", "journal", "integrity"]
    assert list(findings) == [*names, "tasks", "leases", "workers", "queue", "clock"]
    assert all(finding["remedy"] is None for finding in findings.values())
    printed = lines("doctor")
    assert printed[0] == "ok opens the store can be opened"
    assert printed[-1] == f"{Path(STORE).absolute()}: 12 ok"


def test_a_problem_is_printed_with_its_remedy() -> None:
    in_store(nothing)
    Path(STORE).chmod(0o644)
    assert verdicts(found()) == {"rights": "warn"}
    printed = lines("doctor")
    assert "warn rights other users of this machine can read the arguments and results of tasks" in printed
    assert f"-> chmod 600 {Path(STORE).absolute()}" in printed
    assert run_json("doctor")["verdict"] == "warn"


def test_an_unwritable_file_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    in_store(nothing)
    monkeypatch.setattr(os, "access", lambda file, _: Path(file).name != STORE)  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType] - a stand-in
    findings = found(exit_code=1)
    assert verdicts(findings) == {"rights": "bad"}
    assert findings["rights"]["message"] == f"this user can't read and write {Path(STORE).absolute()}"


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.mark.parametrize(("mib", "verdict"), [(2_000, "ok"), (500, "warn"), (50, "bad")])
def test_a_disk_that_is_nearly_full_is_found(mib: int, verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    in_store(nothing)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, mib * 1_024 * 1_024))  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType] - likewise
    findings = found(exit_code=1 if verdict == "bad" else 0)
    assert findings["disk"]["verdict"] == verdict
    assert ("raincheck tasks purge" in (findings["disk"]["remedy"] or "")) == (verdict != "ok")


def test_a_log_that_does_not_shrink_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    in_store(nothing)
    monkeypatch.setattr("raincheck.operations.health.LARGE_WAL", 1)
    holder = sqlite3.connect(STORE)
    holder.execute("BEGIN")
    holder.execute("SELECT * FROM tasks").fetchall()
    in_store(create_task_in_each_phase)
    assert "find the process that keeps reading the file" in found()["log"]["remedy"]
    holder.close()


def test_a_different_journal_mode_and_an_older_schema_are_found() -> None:
    in_store(nothing)
    connection = sqlite3.connect(STORE)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("PRAGMA user_version = 3")
    connection.close()
    before = Path(STORE).read_bytes()
    findings = found(exit_code=1)
    assert verdicts(findings) == {"opens": "bad", "schema": "warn", "journal": "warn"}
    assert "start a server or a worker on it" in findings["opens"]["message"]
    assert findings["journal"]["message"] == "delete, so readers wait for writers"
    assert Path(STORE).read_bytes() == before


def test_a_damaged_file_is_bad() -> None:
    in_store(create_task_in_each_phase)
    content = bytearray(Path(STORE).read_bytes())
    # Whole pages in the middle; the first, which says whose file it is, stays.
    for page in range(4, 16):
        content[page * 4_096 : page * 4_096 + 200] = b"\xff" * 200
    Path(STORE).write_bytes(content)
    findings = found(exit_code=1)
    assert findings["integrity"]["verdict"] == "bad"
    assert "the file is damaged" in findings["integrity"]["message"]
    assert "restore a backup or try SQLite's '.recover'" in findings["integrity"]["remedy"]


def test_unswept_leases_and_deadlines_are_bad() -> None:
    clock = FakeClock(START)

    async def work(harness: StoreHarness) -> None:
        await harness.create_running()
        await harness.create(deadline_at=START + timedelta(seconds=10))

    in_store(work, clock)
    # The lease expires after 30 s, and for a minute more a sweep may still come.
    clock.advance(65)
    assert found(clock)["leases"]["verdict"] == "ok"
    clock.advance(30)
    leases = found(clock, exit_code=1)["leases"]
    assert leases["verdict"] == "bad"
    assert leases["message"] == "2 tasks overdue for up to 85 s, and not recovered by any server: task-0002, task-0001"
    assert leases["remedy"] == "start a server on this store: every server recovers the tasks of dead ones"


def test_a_task_for_a_tool_without_workers_is_found() -> None:
    clock = FakeClock(START)

    async def work(harness: StoreHarness) -> None:
        await harness.create(tool=Tool("deploy", "2"))
        await harness.create(tool=Tool("deploy", "2"))
        harness.clock.advance(120)

    in_store(work, clock)
    workers = found(clock)["workers"]
    assert workers["verdict"] == "warn"
    assert workers["message"] == (
        "2 tasks waited up to 2 min for deploy (version 2) of 'reports', and no worker ran it in the last 10 min"
    )
    assert workers["remedy"] == "start a server or worker named 'reports' that has that version of the tool"


def test_a_task_that_waits_for_busy_workers_has_workers() -> None:
    clock = FakeClock(START)

    async def work(harness: StoreHarness) -> None:
        done = await harness.create_running()
        await harness.create()
        harness.clock.advance(120)
        await harness.apply(done, Complete(1, encode(1)))
        await harness.create(tool=Tool("deploy"))
        harness.clock.advance(120)
        await harness.create_running(tool=Tool("other"))
        await harness.create(tool=Tool("other", "2"))

    in_store(work, clock)
    clock.advance(20)
    printed = found(clock)["workers"]["message"]
    assert "deploy (version 1)" in printed
    assert "build_report" not in printed
    clock.advance(120)
    both = [line for line in lines("doctor", clock=clock, exit_code=1) if line.startswith("warn workers")]
    assert len(both) == 2


def test_a_worker_with_an_expired_lease_does_not_count() -> None:
    clock = FakeClock(START)

    async def work(harness: StoreHarness) -> None:
        await harness.create_running()
        await harness.create()

    in_store(work, clock)
    clock.advance(80)
    assert found(clock)["workers"]["verdict"] == "warn"


def test_a_different_version_that_runs_is_named() -> None:
    clock = FakeClock(START)

    async def work(harness: StoreHarness) -> None:
        await harness.create(tool=Tool("deploy", "2"))
        harness.clock.advance(100)
        await harness.create_running(tool=Tool("deploy", "1"))

    in_store(work, clock)
    assert found(clock)["workers"]["message"].endswith("in the last 10 min; workers run version 1")


def test_a_parked_task_that_no_worker_resumes_is_found() -> None:
    clock = FakeClock(START)

    async def work(harness: StoreHarness) -> None:
        task = await harness.create_running()
        await harness.apply(task, Park(1, seen_signals=0, until=START + timedelta(seconds=60)))

    in_store(work, clock)
    clock.advance(900)
    assert "1 task waited up to 14 min for build_report (version 1)" in found(clock)["workers"]["message"]


@pytest.mark.parametrize(("seconds", "verdict"), [(200, "ok"), (400, "warn")])
def test_the_longest_waiting_task_is_named(seconds: float, verdict: str) -> None:
    clock = FakeClock(START)

    async def work(harness: StoreHarness) -> None:
        await harness.create()
        harness.clock.advance(10)
        await harness.create()

    in_store(work, clock)
    clock.advance(seconds)
    queue = found(clock)["queue"]
    assert queue["verdict"] == verdict
    assert queue["message"].startswith("task-0001 (build_report) has waited longest, for ")


@pytest.mark.parametrize(("seconds", "verdict"), [(1, "ok"), (300, "warn")])
def test_tasks_from_the_future_are_found(seconds: float, verdict: str) -> None:
    clock = FakeClock(START)
    clock.advance(seconds)

    async def work(harness: StoreHarness) -> None:
        await harness.create()

    in_store(work, clock)
    findings = found(FakeClock(START))
    assert findings["clock"]["verdict"] == verdict
    if verdict == "warn":
        assert findings["clock"]["message"].startswith("a task is dated 5 min in the future")


def test_the_number_of_live_tasks_is_reported() -> None:
    clock = FakeClock(START)
    in_store(create_task_in_each_phase, clock)
    clock.jump_to(START)
    assert found(clock)["tasks"]["message"] == "1 queued, 1 running, 1 parked, 1 paused"
