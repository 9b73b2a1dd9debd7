"""Tests for `raincheck stats`: durations, counts and failure rates."""

import io

import pytest
from rich.console import Console

from raincheck.cli.commands.stats import print_stats
from raincheck.core.commands import Cancel, Complete
from raincheck.core.histogram import DurationHistogram
from raincheck.core.records import Tool
from raincheck.core.values import encode
from raincheck.operations.select import Filters
from raincheck.operations.statistics import HOURS, Stats, collect_stats
from raincheck.testing import FakeClock, StoreHarness
from tests.support.cli.operator import START, STORE, create_task_in_each_phase, in_store, lines, run_json

pytestmark = pytest.mark.usefixtures("folder")


async def with_durations(harness: StoreHarness) -> None:
    await create_task_in_each_phase(harness)
    sketch = DurationHistogram().with_durations([1.0] * 50 + [10.0] * 45 + [100.0] * 5)
    await harness.store.merge_durations(
        "reports", {"build_report": sketch, "gone": DurationHistogram().with_duration(0.5)}
    )


def test_json_has_durations_counts_and_rates_with_stable_names() -> None:
    clock = FakeClock(START)
    in_store(with_durations, clock)
    found = run_json("stats", clock=clock)
    assert list(found) == ["at", "created_per_hour", "ended_per_hour", "failed_per_hour", "tools"]
    assert found["at"] == "2026-01-01T00:07:00.000000Z"
    assert found["created_per_hour"] == [0] * 23 + [8]
    assert found["ended_per_hour"] == [0] * 23 + [4]
    assert found["failed_per_hour"] == [0] * 23 + [2]
    build, gone = found["tools"]
    assert build == {
        "namespace": "reports",
        "tool": "build_report",
        "measured": 100,
        "p50_seconds": pytest.approx(1, rel=0.2),
        "p90_seconds": pytest.approx(10, rel=0.2),
        "p99_seconds": pytest.approx(100, rel=0.2),
        "tasks": 8,
        "live": 4,
        "completed": 1,
        "errors": 1,
        "failed": 1,
        "cancelled": 1,
        "failure_share": pytest.approx(2 / 3),
    }
    assert (gone["tool"], gone["tasks"], gone["measured"], gone["failure_share"]) == ("gone", 0, 1, None)


def test_the_table_has_a_row_for_each_tool_with_ascii_plots_without_a_terminal() -> None:
    clock = FakeClock(START)
    in_store(with_durations, clock)
    printed = lines("stats", clock=clock)
    assert printed[0] == "tool measured median p90 p99 durations tasks live failed"
    assert printed[1].startswith("build_report 100 1 s 12 s 110 s @")
    assert printed[1].endswith("8 4 2 (67%) @@@@@@@")
    assert printed[2] == "gone 1 512 ms 512 ms 512 ms @ 0 0"
    assert printed[4:] == [
        "created | @| 8 in 24 h, at most 8 in one",
        "ended | @| 4 in 24 h, at most 4 in one",
        "failed | @| 2 in 24 h, at most 2 in one",
    ]
    assert all(line.isascii() for line in printed)


def test_on_a_terminal_plots_are_blocks() -> None:
    in_store(with_durations)

    async def work(harness: StoreHarness) -> Stats:
        return await collect_stats(harness.store, Filters(), now=START)

    found = in_store(work)
    for width in (80, 120):
        terminal = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
        with terminal.capture() as captured:
            print_stats(found, terminal)
        printed = captured.get()
        assert "█" in printed
        assert "…" not in printed
        assert max(map(len, printed.splitlines())) <= width
        assert ("live" in printed) == (width == 120)


def test_hours_are_counted_back_from_now_and_older_tasks_are_ignored() -> None:
    clock = FakeClock(START)

    async def work(harness: StoreHarness) -> None:
        for hours in (0, 1, 1.5, 23, 24):
            harness.clock.jump_to(START)
            harness.clock.advance(-3_600 * hours)
            await harness.create()
        harness.clock.jump_to(START)
        harness.clock.advance(600)
        await harness.create()

    in_store(work, clock)
    created = run_json("stats", clock=FakeClock(START))["created_per_hour"]
    # What is from the future counts as of now.
    assert created == [1] + [0] * 21 + [2, 2]
    assert len(created) == HOURS


def test_stats_are_per_server_and_tool_and_accept_filters() -> None:
    async def work(harness: StoreHarness) -> None:
        for namespace in ("one", "two"):
            await harness.create(namespace=namespace)
            await harness.create(namespace=namespace, tool=Tool("deploy"))
            await harness.store.merge_durations(
                namespace,
                {"deploy": DurationHistogram().with_duration(1), "build_report": DurationHistogram().with_duration(2)},
            )

    in_store(work)
    assert lines("stats")[0].startswith("namespace tool measured")
    assert len(run_json("stats")["tools"]) == 4
    assert {one["namespace"] for one in run_json("stats", "--namespace", "two")["tools"]} == {"two"}
    assert [one["tool"] for one in run_json("stats", "--namespace", "two", "--tool", "deploy")["tools"]] == ["deploy"]


def test_a_server_without_stored_tasks_is_found_by_its_name() -> None:
    async def work(harness: StoreHarness) -> None:
        await harness.store.merge_durations("quiet", {"nightly": DurationHistogram().with_duration(60)})

    in_store(work)
    assert run_json("stats")["tools"] == []
    assert lines("stats") == [
        "no tasks and no measured durations: --namespace NAME shows the durations of a server without tasks"
    ]
    (nightly,) = run_json("stats", "--namespace", "quiet")["tools"]
    assert (nightly["tool"], nightly["measured"], nightly["tasks"]) == ("nightly", 1, 0)


def test_cancelled_tasks_do_not_count_as_failed() -> None:
    async def work(harness: StoreHarness) -> None:
        await harness.apply(await harness.create(), Cancel("alice"))
        await harness.apply(await harness.create_running(tool=Tool("fine")), Complete(1, encode(1)))

    in_store(work)
    shares = {one["tool"]: one["failure_share"] for one in run_json("stats")["tools"]}
    assert shares == {"build_report": None, "fine": 0.0}
    assert STORE not in lines("stats")[0]
