"""Tests for hostile servers: their output is shown, but obeyed by neither a terminal nor a shell."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli.terminal import at_terminal, list_saved_calls, run

SERVER = r"""
import json
import sys

mode, name = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "t-1"
EVIL = "\x1b]0;PWNED\x07\x9b31m\u202e"
WHEN = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z", "ttlMs": None}
TASK = {"resultType": "complete", "taskId": name, **WHEN, "pollIntervalMs": 50}
KEPT = {"resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
FIELD = {"type": "string", "title": f"Name {EVIL}", "default": f"d{EVIL}"}
FORM = {"mode": "form", "message": "hi", "requestedSchema": {"type": "object", "properties": {"a": FIELD}}}
looks = 0
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result, error = None, {"code": -32601, "message": "Method not found"}
    match message["method"]:
        case "server/discover" | "initialize" if mode == "greets":
            error = {"code": -32000, "message": f"go away {EVIL}"}
        case "server/discover":
            extensions = {"io.modelcontextprotocol/tasks": {}}
            result = {"supportedVersions": ["2026-07-28"], "serverInfo": {"name": "evil", "version": "1"}, **KEPT}
            result["capabilities"] = {"tools": {}, "extensions": extensions}
        case "tools/list":
            kinds = {"x": {"type": "string", "description": f"an argument {EVIL}"}}
            schema = {"type": "object", "properties": kinds, "required": ["x"] if mode == "misses" else []}
            result = {"tools": [{"name": "work", "inputSchema": schema}], **KEPT}
        case "tools/call":
            result = {"resultType": "task", "taskId": name, "status": "working", **WHEN}
        case "tasks/get" if mode == "fails" and looks:
            error = {"code": -32603, "message": "internal"}
        case "tasks/get":
            looks += 1
            result = {**TASK, "status": "working"}
            if mode == "cancels":
                result = {**TASK, "status": "cancelled", "statusMessage": f"bye {EVIL}"}
            if mode == "asks":
                question = {"k": {"method": "elicitation/create", "params": FORM}}
                result = {**TASK, "status": "input_required", "inputRequests": question}
            if mode == "ends":
                answer = {"content": [{"type": "text", "text": "ok"}], "structuredContent": {"a": EVIL}}
                result = {**TASK, "status": "completed", "result": {**answer, "resultType": "complete"}}
        case "tasks/cancel":
            error = {"code": -32603, "message": "I will not"}
        case "subscriptions/listen":
            continue
        case _:
            pass
    said = {"error": error} if result is None else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
"""

EVIL = ("\x1b]0;", "\x07", "\x9b", "\u202e")


@pytest.fixture(autouse=True)
def _in_folder(folder: Path) -> None:
    (folder / "evil.py").write_text(SERVER, encoding="utf-8")


def evil(*words: str) -> str:
    return shlex.join([sys.executable, "evil.py", *words])


def left(task_id: str) -> str:
    """What is said of a task that was left under way, which has this id."""
    done = run("call", evil("works", task_id), "work", "--detach")
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("mode", ["greets", "misses", "cancels", "ends"])
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["words", "json"])
def test_output_of_a_server_is_escaped_on_a_terminal(mode: str, options: list[str]) -> None:
    with at_terminal("call", evil(mode), "work", *options) as screen:
        screen.end()
        assert not [one for one in EVIL if one in screen.raw]
        assert "]0;PWNED" in screen.raw


def test_form_fields_are_escaped_on_a_terminal() -> None:
    with at_terminal("call", evil("asks"), "work") as screen:
        screen.expect("Name \\x1b]0;PWNED").expect("Enter: d\\x1b]0;PWNED").press("c").expect("[d]etach").type("d")
        assert screen.end() == 4
        assert not [one for one in EVIL if one in screen.raw]


def test_escaped_json_has_the_same_content() -> None:
    done = run("call", evil("ends"), "work", "--json")
    assert done.stdout.isascii()
    assert json.loads(done.stdout)["structuredContent"] == {"a": "\x1b]0;PWNED\x07\x9b31m\u202e"}


@pytest.mark.parametrize(
    "task_id", ["a;touch${IFS}pwned;1", "$(touch pwned)", "--forget", "-", "it is  mine", "a/" * 30]
)
def test_printed_commands_are_quoted_for_a_shell(task_id: str) -> None:
    found = re.search(r"raincheck (wait .+) waits for it, raincheck (cancel .+) cancels it\.", left(task_id))
    assert found is not None
    for pasted in found.groups():
        words = json.loads(
            subprocess.run(
                [
                    "/bin/sh",
                    "-c",
                    f'"$0" -c "import json, sys; print(json.dumps(sys.argv[1:]))" {pasted}',
                    sys.executable,
                ],
                capture_output=True,
                check=True,
                text=True,
            ).stdout
        )
        assert words[-1] == task_id
        assert not Path("pwned").exists()
        # It is understood as it is meant, too.
        done = run("get", *words[1:])
        assert done.returncode == 4, done.stderr


def test_ids_with_a_common_prefix_are_distinguished() -> None:
    names = [f"projects/p1/locations/eu/operations/{number}" for number in (1, 2)]
    for name in names:
        assert f"raincheck cancel {name} cancels it" in left(name)
    assert re.findall(r"^projects\S+", run("wait").stdout, re.MULTILINE) == names
    done = run("get", "projects/")
    assert done.returncode == 2
    assert f"({names[0]}, {names[1]}): write more of the id" in done.stderr


@pytest.mark.parametrize(
    ("mode", "why"),
    [("works", "the server refused the request: I will not."), ("fails", "the server refused the request: internal.")],
)
def test_a_task_that_can_not_be_cancelled_can_be_resumed(mode: str, why: str) -> None:
    with at_terminal("call", evil(mode), "work") as screen:
        screen.expect("task t-1").press("c").expect("[d]etach").type("c")
        screen.expect(
            f"{why} work is stored as task t-1, but its server ends with this command: raincheck wait t-1 waits"
        )
        assert screen.end() == 4
        assert "Traceback" not in screen.text
    assert [task_ref["task_id"] for task_ref in list_saved_calls()] == ["t-1"]
