"""What `bench.wire` measures with: every server answers the client, and what is told is what was asked for."""

from dataclasses import replace
from pathlib import Path

import pytest
from bench.progress import Progress
from bench.wire import page
from bench.wire.cell import Cell
from bench.wire.measure import FULL, measure
from bench.wire.peers import peers
from bench.wire.servers import PLAIN_2025, SDK

pytestmark = pytest.mark.anyio

EXTENT = replace(FULL, rounds=1, seconds=0.05, at_once=20, operations={16: FULL.operations[16]})
OURS = frozenset({"floor", SDK, PLAIN_2025, "memory", "SQLite FULL", "SQLite FULL, 2025", "PostgreSQL, 1 w"})


async def test_everything_is_asked_of_every_server_of_ours_in_both_generations(tmp_path: Path) -> None:
    cells = await measure(tmp_path, replace(EXTENT, servers=OURS), Progress())
    plain = {"floor", PLAIN_2025, SDK}
    assert {(cell.server, cell.operation) for cell in cells} == {
        *((name, "call") for name in plain),
        *((name, operation) for name in OURS - plain for operation in FULL.operations[16]),
    } - {("SQLite FULL, 2025", "update")}
    assert all(min(*cell.measured, *cell.against) > 0 for cell in cells)


async def test_peers_are_asked_the_same(tmp_path: Path) -> None:
    found, missing = peers(None)
    assert [line.partition(":")[0] for line in missing] == ["FastMCP 4 on Redis"], "scripts/setup makes the others"
    theirs = {server.name for server in found}
    cells = await measure(tmp_path, replace(EXTENT, servers=frozenset({SDK, *theirs})), Progress())
    assert {cell.server for cell in cells} == {SDK, *theirs}
    assert all(min(*cell.measured, *cell.against) > 0 for cell in cells)


def test_the_page_has_the_figures_that_are_kept() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert text.count("<!-- performance: ") == 6
    assert page.fill(text, *page.load()) == text, "run python -m bench.wire --write"


def test_a_ratio_is_the_median_of_what_each_round_was() -> None:
    cell = Cell("SQLite FULL", "create", 16, [50, 90, 30], [100, 100, 50])
    assert (cell.ratio, cell.ratios) == (0.6, [0.5, 0.6, 0.9])
    assert cell.aim == 0.6
    assert "0.60 (0.50 to 0.90)" in page.table([cell])


def test_what_was_not_measured_is_told_as_such() -> None:
    one, other = Cell("one", "create", 1, [1], [2]), Cell("other", "get", 1, [1], [4])
    assert page.table([one, other]).splitlines()[-1] == "| other | - | 0.25 (0.25 to 0.25) |"
