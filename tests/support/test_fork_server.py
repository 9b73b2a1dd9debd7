"""A forked process behaves like one that is started by exec."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import fork_server
from tests.support.fork_server import OWN_DESCRIPTOR, Preparation

pytestmark = pytest.mark.skipif(not fork_server.available(), reason="processes are not forked here")

FACTS = """
import json, os, signal, sys
print(json.dumps({
    "argv": sys.argv, "name": __name__, "first on path": sys.path[0], "cwd": os.getcwd(),
    "mark": os.environ.get("MARK"), "parent": os.getppid(), "session": os.getsid(0) == os.getpid(),
    "stdin": sys.stdin.read(),
    "hang-up": signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, "forked": "raincheck.server" in sys.modules,
}))
"""


def facts(*command: str, cwd: Path, **options: Any) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, *command], input="typed", capture_output=True, text=True, check=True, cwd=cwd, **options
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("arguments", [["-c", FACTS, "a", "b"], ["facts.py", "a"], ["-m", "facts"], ["-P", "facts.py"]])
def test_a_forked_process_sees_what_one_that_is_executed_sees(
    arguments: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "facts.py").write_text(FACTS)
    if "-P" in arguments:
        (tmp_path / "json.py").write_text("raise RuntimeError('imported from the folder of the script')")
    options: dict[str, Any] = {"env": {**os.environ, "MARK": "x"}, "start_new_session": True}
    forked = facts(*arguments, cwd=tmp_path, **options)
    monkeypatch.setattr(fork_server, "cold", True)
    executed = facts(*arguments, cwd=tmp_path, **options)
    assert forked.pop("forked") is not executed.pop("forked")
    assert forked == executed
    assert forked["parent"] == os.getpid()


@pytest.mark.parametrize(
    ("code", "returncode"),
    [
        ("pass", 0),
        ("raise SystemExit(3)", 3),
        ("raise KeyError(1)", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT),
    ],
)
def test_it_ends_with_the_status_that_the_kernel_reports(code: str, returncode: int) -> None:
    assert subprocess.run([sys.executable, "-c", code], check=False, stderr=subprocess.DEVNULL).returncode == returncode


def test_a_descriptor_is_passed_under_its_own_number() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader) as received:
        code = f"import os; os.write({writer}, b'hello')"
        subprocess.run([sys.executable, "-c", code], pass_fds=[writer], check=True)
        os.close(writer)
        assert received.read() == "hello"


def test_its_own_processes_are_forked_too() -> None:
    inner = "import sys; print('raincheck.server' in sys.modules)"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    done = subprocess.run([sys.executable, "-c", outer], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_no_other_descriptor_is_open_in_it() -> None:
    code = "import os; print(*os.listdir('/proc/self/fd'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # 3 is that of the listing.
    assert [one for one in map(int, done.stdout.split()) if one < OWN_DESCRIPTOR] == [0, 1, 2, 3]


def test_it_does_first_what_it_was_prepared_for() -> None:
    preparation = Preparation(ignored_signals=[signal.SIGHUP])
    done = subprocess.run(
        [sys.executable, "-c", FACTS], input="", capture_output=True, text=True, check=True, preexec_fn=preparation
    )
    assert json.loads(done.stdout)["hang-up"] is True


@pytest.mark.anyio
async def test_processes_that_are_started_at_once_are_not_mixed_up() -> None:
    async def run(number: int) -> int:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", f"raise SystemExit({number})")
        return await process.wait()

    def run_in_thread(number: int) -> int:
        return subprocess.run([sys.executable, "-c", f"raise SystemExit({number})"], check=False).returncode

    here = asyncio.gather(*map(run, range(8)))
    threads = asyncio.gather(*(asyncio.to_thread(run_in_thread, number) for number in range(8)))
    assert await here == await threads == list(range(8))


def test_a_folder_that_is_not_there_is_an_error_of_the_caller(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        subprocess.run([sys.executable, "-c", "pass"], check=True, cwd=tmp_path / "nowhere")
