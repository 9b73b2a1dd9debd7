"""`bench.scale` computes from measured costs what a load needs, and which limit it reaches first."""

import json
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from bench.scale_model import BUSY, FILLED, Cost, Costs, Load, Machine, Operation, first_wall, needs, times

from bench import scale

NOTHING = Cost(0, 0, 0, 0, 0)
OPERATIONS: tuple[Operation, ...] = ("create", "poll", "run", "step", "answer", "cancel", "prune")
FREE = Costs(
    machine="a model",
    operations=dict.fromkeys(OPERATIONS, NOTHING),
    heard_process=0,
    heard_database=0,
    idle_process=0,
    idle_database=0,
    live_bytes=0,
    kept_bytes=0,
    vacuumed_bytes=0,
    notified_commits=1_000,
    plain_commits=10_000,
)
LOAD = Load(live=86_400, polls=100, steps=0, answers=0, cancelled=0, busy=0)
"""One new task a second."""


def costing(**operations: Cost) -> Costs:
    return replace(FREE, operations={**FREE.operations, **operations})


def test_twice_the_polls_cost_only_twice_the_cpu() -> None:
    costs = costing(poll=Cost(0.001, 0.01, 0, 0, 0))
    once, twice = (needs(costs, replace(LOAD, polls=polls), Machine()) for polls in (1_200, 2_400))
    assert once.cores == pytest.approx(1.2 / BUSY)
    assert twice.cores == pytest.approx(2 * once.cores)
    assert (once.servers, twice.servers) == (20, 40)
    assert (once.notices, once.wal, once.disk) == (twice.notices, twice.wal, twice.disk) == (0, 0, 0)


def test_twice_the_tasks_are_twice_the_commits_and_bytes() -> None:
    costs = replace(costing(create=Cost(0, 0, 1, 1, 100)), live_bytes=1_000, kept_bytes=3_000)
    once = needs(costs, LOAD, Machine())
    twice = needs(costs, replace(LOAD, live=2 * LOAD.live), Machine())
    assert (once.commits, once.notices, once.wal) == (1, 1, 100)
    assert (twice.commits, twice.notices, twice.wal) == (2, 2, 200)
    assert twice.disk == 2 * once.disk == pytest.approx(2 * 1.5 * 86_400 * 4_000)


def test_tasks_that_live_half_as_long_start_twice_as_often() -> None:
    assert replace(LOAD, lifetime=LOAD.lifetime / 2).rates()["create"] == 2 * LOAD.rates()["create"] == 2


def test_an_answered_question_costs_another_attempt() -> None:
    rates = replace(LOAD, answers=2).rates()
    assert (rates["answer"], rates["run"]) == (2, 3)


def test_the_first_limit_is_the_one_that_is_reached_first() -> None:
    telling = costing(create=Cost(0.001, 0, 1, 1, 0))
    many = replace(LOAD, live=86_400 * 900)
    wall, room = first_wall(telling, many, Machine(cores=16))
    assert (wall, room) == ("notices", pytest.approx(1_000 / 900, rel=1e-3))
    # A disk that syncs faster moves it, until there are too few cores.
    wall, room = first_wall(telling, many, Machine(cores=1, syncs=20_000))
    assert (wall, room) == ("database CPU", pytest.approx(BUSY / 0.9, rel=1e-3))
    assert not needs(telling, many, Machine(cores=1, syncs=20_000)).is_possible


def test_a_long_retention_reaches_the_limit_of_the_disk() -> None:
    costs = replace(FREE, kept_bytes=5_000)
    assert needs(costs, replace(LOAD, kept=86_400 * 3_650), Machine(disk=1e11)).tightest == "disk"


def test_more_processes_need_more_connections_and_get_more_notifications() -> None:
    costs = replace(costing(create=Cost(0, 0, 1, 1, 0), poll=Cost(0, 0.06, 0, 0, 0)), heard_database=0.001)
    few, many = (needs(costs, replace(LOAD, polls=polls), Machine()) for polls in (100, 1_000))
    assert (few.servers, many.servers) == (10, 100)
    assert many.used["connections"] == pytest.approx((100 * 10 + 15) / 500)
    assert many.cores > few.cores > 0
    assert many.tightest == "connections"


def test_a_process_with_too_many_notifications_has_no_time_left() -> None:
    costs = replace(costing(create=Cost(0, 0.001, 1, 1, 0)), heard_process=0.001)
    once = replace(LOAD, live=86_400 * 100)
    assert needs(costs, once, Machine()).servers == 1
    assert needs(costs, times(once, 5.9), Machine()).servers == 59
    assert needs(costs, times(once, 7), Machine()).servers == inf
    wall, room = first_wall(costs, once, Machine(connections=1e9))
    assert (wall, room) == ("hearing", pytest.approx(6, rel=1e-3))


def test_long_bodies_need_slots() -> None:
    assert needs(FREE, replace(LOAD, busy=960), Machine(concurrency=16)).workers == 960 / 16 / FILLED


def test_changes_faster_than_vacuum_reach_its_limit() -> None:
    costs = replace(costing(step=Cost(0, 0, 1, 1, 0)), vacuumed_bytes=5_000)
    machine = Machine(syncs=1e9)
    once = needs(costs, replace(LOAD, steps=1_000), machine)
    assert once.tightest == "vacuum"
    twice = needs(costs, replace(LOAD, steps=2_000), machine)
    assert twice.used["vacuum"] == pytest.approx(2 * once.used["vacuum"])
    quicker = needs(costs, replace(LOAD, steps=1_000), replace(machine, vacuum=2 * machine.vacuum))
    assert quicker.used["vacuum"] == pytest.approx(once.used["vacuum"] / 2)


@pytest.mark.parametrize(("text", "number"), [("30", 30), ("200k", 200_000), ("5M", 5_000_000), ("1.5m", 1_500_000)])
def test_amounts_are_parsed_with_their_units(text: str, number: float) -> None:
    assert scale.amount(text) == number


def test_costs_are_read_back_unchanged(tmp_path: Path) -> None:
    costs = costing(poll=Cost(0.001234567, 0.01, 1, 1, 100))
    scale.save_costs(costs, tmp_path / "costs.json")
    assert scale.load_costs(tmp_path / "costs.json") == costing(poll=Cost(0.00123, 0.01, 1, 1, 100))


def test_the_page_has_the_figures_of_the_stored_costs() -> None:
    page = scale.PAGE.read_text(encoding="utf-8")
    assert page.count("<!-- scale: ") == 4
    assert scale.fill(page, scale.load_costs()) == page, "run python -m bench.scale --write"


def test_the_command_shows_what_a_load_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert scale.main(["--tasks", "5M", "--polls", "2k", "--lifetime", "21600", "--pg-cores", "64", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["load"]["live"], said["load"]["lifetime"]) == (5e6, 21_600)
    assert said["needs"]["used"]["database CPU"] == pytest.approx(said["needs"]["cores"] / 64)
    assert scale.main(["--tasks", "10k"]) == 0
    assert "first wall" in capsys.readouterr().out
