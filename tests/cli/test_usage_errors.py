"""Tests for usage errors: with `--json` every command reports them in the same form."""

import json
import sys
from pathlib import Path

import pytest

from tests.support.cli.terminal import run

pytestmark = pytest.mark.usefixtures("folder")

NOWHERE = ["--store", "nowhere.db"]


@pytest.mark.parametrize(
    "words",
    [
        ["call", "no-such-program", "add"],
        ["wait", "zzz"],
        ["get", "zzz"],
        ["cancel", "zzz"],
        ["answer", "zzz", "ok=yes"],
        ["tasks", "ls", *NOWHERE],
        ["tasks", "show", "zzz", *NOWHERE],
        ["tasks", "watch", *NOWHERE],
        ["tasks", "retry", "zzz", *NOWHERE],
        ["tasks", "purge", "--older-than", "0s", *NOWHERE],
        ["doctor", *NOWHERE],
        ["stats", *NOWHERE],
        ["tools", "nothing.py"],
        ["serve", "nothing.py", "--http", "127.0.0.1:0"],
        ["conformance", "2025-11-25", "--only", "nothing", "http://127.0.0.1:9/mcp"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_usage_error_is_one_line_of_json(words: list[str]) -> None:
    done = run(*words, "--json")
    assert done.returncode == 2
    (line,) = done.stdout.splitlines()
    assert done.stderr == f"raincheck: {json.loads(line).pop('error')}\n"
    assert list(json.loads(line)) == ["error"]
    plain = run(*words)
    assert (plain.returncode, plain.stdout, plain.stderr) == (2, "", done.stderr)


def test_on_stdio_nothing_but_messages_goes_to_stdout() -> None:
    done = run("serve", "nothing.py", "--json")
    assert (done.returncode, done.stdout) == (2, "")


def test_an_invalid_url_is_reported() -> None:
    done = run("call", "http://[bad/mcp", "add")
    assert (done.returncode, done.stdout) == (2, "")
    assert "raincheck: the URL is invalid" in done.stderr


def test_version_prints_the_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "raincheck")


def test_every_command_is_described_in_a_line_of_eighty_characters() -> None:
    for group in ([], ["tasks"]):
        reported = [line for line in run(*group, "--help", env={"COLUMNS": "80"}).stdout.splitlines() if "..." in line]
        # The first is how it is used.
        assert reported[1:] == []


def test_a_failed_call_says_where_to_find_the_exception(folder: Path) -> None:
    (folder / "mine.py").write_text(
        "from mcp.server.mcpserver import MCPServer\n"
        "from raincheck import Tasks\n\n"
        "mcp = MCPServer('mine')\n"
        "tasks = Tasks(mcp, 'tasks.db')\n\n\n"
        "@tasks.tool(inline_for=0, expected=30, retry_on=())\n"
        "async def broken() -> str:\n"
        "    raise ValueError('the camera is on fire')\n"
    )
    program = Path(sys.executable).with_name("raincheck")
    done = run("call", f"{program} serve mine.py", "broken")
    assert done.returncode == 1
    (task,) = json.loads(run("tasks", "ls", "--store", "tasks.db", "--json").stdout)
    assert f"\nraincheck tasks show {task['id'][:20]} --store …, with the server's store" in done.stderr
    assert "Its stderr" not in done.stderr
    shown = [
        " ".join(line.split()) for line in run("tasks", "show", task["id"], "--store", "tasks.db").stdout.splitlines()
    ]
    first = shown.index("raise ValueError('the camera is on fire')")
    assert "line 10, in broken" in shown[first - 1]
    assert shown[first + 1 : first + 3] == [
        "ValueError: the camera is on fire",
        "(--full shows all of it)",
    ]
    whole = run("tasks", "show", task["id"], "--store", "tasks.db", "--full").stdout
    assert "Traceback (most recent call last):" in whole
    assert "\\n" not in whole
