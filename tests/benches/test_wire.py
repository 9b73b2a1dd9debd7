"""What `bench.wire` measures with: every server answers the client, and what is told is what was asked for."""

from dataclasses import replace
from pathlib import Path

import pytest
from bench.progress import Progress
from bench.wire.measure import OPERATIONS, Extent, measure
from bench.wire.peers import peers
from bench.wire.servers import PLAIN_2025, SDK

pytestmark = pytest.mark.anyio

EXTENT = Extent(rounds=1, seconds=0.05, at_once=20, callers=(16,))
OURS = frozenset({"floor", SDK, PLAIN_2025, "memory", "SQLite FULL", "SQLite FULL, 2025", "PostgreSQL, 1 w"})


async def test_everything_is_asked_of_every_server_of_ours_in_both_generations(tmp_path: Path) -> None:
    figures, _ = await measure(tmp_path, replace(EXTENT, servers=OURS), Progress())
    asked = {figure.name for figure in figures}
    assert asked == {
        f"{operation} x16, {name}"
        for operation in OPERATIONS[16]
        for name in OURS - {SDK}
        if (operation, name) != ("update", "SQLite FULL, 2025")
    }
    assert all(min(*figure.measured, *figure.against) > 0 for figure in figures)
    assert {figure.name for figure in figures if figure.bound is not None} == {
        f"{operation} x16, {name}"
        for operation in ("create", "get", "all done")
        for name in ("SQLite FULL", "PostgreSQL, 1 w")
    }


async def test_peers_are_asked_the_same(tmp_path: Path) -> None:
    found, missing = peers(None)
    assert [line.partition(":")[0] for line in missing] == ["FastMCP 4 on Redis"], "scripts/setup makes the others"
    theirs = {server.name for server in found}
    figures, _ = await measure(tmp_path, replace(EXTENT, servers=frozenset({SDK, *theirs})), Progress())
    assert {figure.name.partition(", ")[2] for figure in figures} == theirs
    assert all(min(*figure.measured, *figure.against) > 0 for figure in figures)
