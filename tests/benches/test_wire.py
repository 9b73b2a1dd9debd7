"""What `bench.wire` measures with: every server answers the client, and what is told is what was asked for."""

from pathlib import Path

import pytest
from bench.progress import Progress
from bench.wire.measure import ASKED, measure

pytestmark = pytest.mark.anyio


async def test_every_server_is_asked_everything_in_every_round(tmp_path: Path) -> None:
    figures = await measure(tmp_path, count=20, callers=4, rounds=2, progress=Progress())
    assert [figure.name for figure in figures] == [asked.name for asked in ASKED]
    for figure in figures:
        assert len(figure.measured) == len(figure.against) == 2
        assert min(*figure.measured, *figure.against) > 0
