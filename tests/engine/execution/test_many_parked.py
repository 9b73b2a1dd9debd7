"""Two thousand parked tasks on four slots."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.engine import many_parked

pytestmark = pytest.mark.anyio


async def run(store: Path, what: str) -> tuple[dict[str, Any], int | None]:
    arguments = (many_parked.__file__, str(store), what)
    program = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    output, _ = await program.communicate()
    return json.loads(output), program.returncode


async def test_parked_tasks_cost_little_and_each_resumes_with_its_own_answer(tmp_path: Path) -> None:
    asked, code = await run(tmp_path / "tasks.db", "ask")
    assert code == -signal.SIGKILL
    assert asked["counts"] == {"parked": many_parked.WARM_UP + many_parked.COUNT}
    assert asked["kilobytes_each"] < 5
    assert asked["other_work"] == ["completed"] * 5

    answered, code = await run(tmp_path / "tasks.db", "answer")
    assert code == 0
    assert answered == {
        "resumed_once": True,
        "attempts": [2],
        "got_their_own": True,
        "count": many_parked.WARM_UP + many_parked.COUNT,
    }
