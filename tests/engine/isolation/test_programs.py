"""Isolated bodies as part of a program: how they are found, and that they end with the program."""

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import platformdirs
import pytest

import raincheck
from tests.support import ROOT
from tests.support.engine.isolation import TIMEOUT, ProcessWitness, process_exists

pytestmark = pytest.mark.anyio

PATH = [
    str(ROOT),
    *(str(Path(file).parent.parent) for file in (raincheck.__file__, platformdirs.__file__)),
]
"""Where programs find what they need, even if they have no site-packages."""

PROGRAM = """
import asyncio
import sys

sys.path[:0] = {path!r}
from tests.support.engine import isolated_bodies as bodies
from tests.support.engine.isolation import Isolation


class Odd(Exception):
    pass


def double(number):
    return 2 * number


def is_odd():
    raise Odd("indeed")


async def main():
    isolation = Isolation()
{main}


if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.fixture
async def witness(tmp_path: Path) -> AsyncIterator[ProcessWitness]:
    async with ProcessWitness(tmp_path / "w").listening() as witness:
        yield witness


async def start_program(
    folder: Path, main: str, *how: str, text: str = PROGRAM, cwd: Path | None = None
) -> asyncio.subprocess.Process:
    text = text.format(path=PATH, main=textwrap.indent(textwrap.dedent(main), " " * 4))
    await asyncio.to_thread((folder / "program.py").write_text, text)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-X", "dev", "-W", "error"),
        *(how or ("program.py",)),
        cwd=cwd or folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


async def run_program(folder: Path, main: str, *how: str, **options: Any) -> tuple[list[str], list[str]]:
    """Run a program that starts a body. Returns the lines that it says on stdout and on stderr."""
    process = await start_program(folder, main, *how, **options)
    async with asyncio.timeout(TIMEOUT):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    # With -X dev, asyncio also says of every turn of the loop how long it took, if a busy machine made it wait.
    said = [line for line in err.decode().splitlines() if not (line.startswith("Executing ") and " took " in line)]
    return out.decode().splitlines(), said


@pytest.mark.parametrize("how", [["program.py"], ["-m", "program"]])
async def test_a_body_in_the_program_itself_is_found(tmp_path: Path, how: list[str]) -> None:
    main = """
        print(await isolation.returned_by(double, number=21))
        error = await isolation.raised_by(is_odd)
        print(error, error.is_a(Odd))
    """
    assert await run_program(tmp_path, main, *how) == (["42", "Odd: indeed True"], [])


async def test_a_body_that_was_defined_interactively_can_t_be_found(tmp_path: Path) -> None:
    text = PROGRAM.format(path=PATH, main="    print(await isolation.raised_by(double, number=21))")
    out, _ = await run_program(tmp_path, "...", "-c", text)
    assert out == [
        "the body of tool 'isolated' was defined interactively, so another process can't find it: put it into a file"
    ]


async def test_a_program_that_starts_when_it_is_loaded_does_not_start_processes_endlessly(tmp_path: Path) -> None:
    text = PROGRAM.replace('if __name__ == "__main__":', "if True:")
    out, err = await run_program(
        tmp_path, "print(await isolation.outcome(double, number=21), file=sys.stderr)", text=text
    )
    assert out == []
    assert 'put the code that starts the program under `if __name__ == "__main__":`' in err[0]
    assert err[1:] == ["BodyResult(value=42)"]


async def test_a_process_has_the_search_path_of_the_program(tmp_path: Path) -> None:
    """Not in the working directory, where anything may have the name of what it imports."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "json.py").write_text("raise RuntimeError('the wrong one')")
    main = "print((await isolation.returned_by(bodies.plain, numbers=[3]))['sum'])"
    assert await run_program(tmp_path, main, "-S", "../program.py", cwd=elsewhere) == (["3"], [])


async def test_output_of_a_body_does_not_reach_the_engines_stdout(tmp_path: Path) -> None:
    """Which may be an MCP connection."""
    out, err = await run_program(tmp_path, "await isolation.returned_by(bodies.prints)\nprint('ours')")
    assert out == ["ours"]
    assert sorted(err) == ["echoed", "printed", "read ''", "written"]


async def test_a_program_whose_loop_ends_leaves_no_process(tmp_path: Path) -> None:
    out, err = await run_program(tmp_path, "isolation.start(bodies.spins)\nprint(await isolation.next_status())")
    assert not process_exists(out[0])
    assert err == []


@pytest.mark.parametrize(
    "started", ["bodies.spins_in_the_loop", "bodies.starts_a_process, is_stubborn=True, stays=True"]
)
async def test_a_program_that_is_killed_takes_its_bodies_with_it(
    tmp_path: Path, witness: ProcessWitness, started: str
) -> None:
    main = f"isolation.start({started}, address={witness.address!r})\nawait asyncio.sleep(600)"
    process = await start_program(tmp_path, main)
    await witness.wait_connected()
    process.kill()
    await witness.wait_disconnected()
    await process.communicate()


UNGUARDED = """
import asyncio
from raincheck import Engine, TaskFailed, Toolbox, open_store

toolbox = Toolbox()


@toolbox.tool(isolation="process")
def crunch() -> int:
    return 1


async def main() -> None:
    async with open_store("tasks.db") as store, Engine(store, toolbox) as engine:
        task = await engine.submit("crunch")
        try:
            print(await engine.result(task.id))
        except TaskFailed as error:
            print(error.phase, (await engine.view(task.id)).task.attempt_number, len((await engine.list_tasks()).tasks))


asyncio.run(main())
"""


async def test_a_program_that_starts_itself_in_the_process_of_its_tool_fails_that_task_once(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(UNGUARDED)
    program = await asyncio.create_subprocess_exec(
        sys.executable, "program.py", cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await program.communicate()
    assert output == b"failed 1 1\n", errors.decode()
    assert 'put the code that starts the program under `if __name__ == "__main__":`' in errors.decode()
