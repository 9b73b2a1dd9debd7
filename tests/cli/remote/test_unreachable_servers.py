"""Tests for servers that can't be called: dead, silent, or not MCP servers. The errors are helpful."""

import contextlib
import json
import shlex
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.cli.terminal import COMMAND, list_saved_calls, run, run_in_process, serving

pytestmark = pytest.mark.usefixtures("workshop")


def program(text: str) -> str:
    return shlex.join([sys.executable, "-c", text])


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (
            program("print(1)"),
            ["it exited, or closed the connection, before it responded: check that it is an MCP server"],
        ),
        (program("raise SystemExit('no key is set')"), ["it exited", "\nIts stderr:\n  no key is set\n"]),
        (program("import time; time.sleep(60)"), ["did not respond within 1 s", "--connect-timeout"]),
        (program("while True: print('y' * 99)"), ["did not respond within 1 s"]),
        (
            program("import sys\nfor line in sys.stdin: print(line, flush=True)"),
            ["it does not respond like an MCP server"],
        ),
        ("http://127.0.0.1:9/mcp", ["no server listens there: start it, or check the address"]),
        ("http://no.such.host.invalid/mcp", ["can't be reached"]),
        ("http:///mcp", ["the address names no host: correct it"]),
    ],
    ids=["ends", "ends with words", "says nothing", "says nonsense", "echoes", "refuses", "no host", "no address"],
)
def test_an_unreachable_server_exits_with_two_and_a_remedy(server: str, words: list[str]) -> None:
    done = run("call", server, "add", "a=1", "--connect-timeout", "1" if "within 1 s" in words[0] else "30")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("raincheck: ")
    assert "Traceback" not in done.stderr
    for part in words:
        assert part in done.stderr


def test_secrets_in_a_command_are_redacted_however_quoted() -> None:
    server = f"""{program("print(1)")} --token abcdef123 --password "it's-mine" --pass xyz"""
    done = run("call", server, "add", "a=1")
    assert done.returncode == 2
    assert "--token ... --password ... --pass ... can't be reached" in done.stderr


def test_library_logs_are_not_printed() -> None:
    done = run_in_process("call", program("print('nonsense')"), "add", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"] == done.stderr.removeprefix("raincheck: ").strip()
    assert len(done.stderr.splitlines()) == 1


class Odd(BaseHTTPRequestHandler):
    """Answers every request with the status that its path says."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        status, kind = self.path.strip("/").split("-")
        self.send_response(int(status))
        if status == "302":
            self.send_header("Location", "http://elsewhere.example/mcp")
        self.send_header("Content-Type", {"html": "text/html", "json": "application/json"}[kind])
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"hi")

    def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - nothing to say
        return


@pytest.fixture(scope="module")
def odd() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Odd) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("401-html", "authentication is required: pass --header 'Authorization: Bearer …'"),
        ("403-html", "access is denied: pass a different --header"),
        ("404-html", "there is no MCP server at this address: check the URL, which usually ends in /mcp"),
        ("405-html", "there is no MCP server at this address: check the URL, which usually ends in /mcp"),
        ("200-html", "there is no MCP server at this address: check the URL, which usually ends in /mcp"),
        ("200-json", "there is no MCP server at this address: check the URL, which usually ends in /mcp"),
        ("302-html", "Redirect to http://elsewhere.example/mcp not followed"),
        ("500-html", "the server failed (HTTP 500): see its log"),
    ],
)
def test_a_url_without_an_mcp_server_is_reported_as_such(odd: str, path: str, why: str) -> None:
    done = run("call", f"{odd}/{path}", "add", "a=1")
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_server_that_dies_during_a_call_is_reported_as_unknown_outcome() -> None:
    done = run("call", COMMAND, "die")
    assert done.returncode == 1
    assert (
        "broke during a call of 'die', so it is unknown whether the call was started: check before you call again"
        in done.stderr
    )
    assert "\nIts stderr:\n  the workshop opens" in done.stderr


def test_calls_of_an_unavailable_server_stay_saved() -> None:
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(serving("--http", "127.0.0.1:0"))
        assert run("call", url, "hold", "--detach").returncode == 0
        stack.close()
        (task_ref,) = list_saved_calls()
        done = run("wait", task_ref["task_id"])
        assert done.returncode == 2
        assert "no server listens there" in done.stderr
        assert list_saved_calls() == [task_ref]


def test_a_token_is_sent_and_not_saved() -> None:
    with serving("--http", "127.0.0.1:0") as url:
        secret = ["--header", "Authorization: Bearer my-secret"]
        task_ref = json.loads(run("call", url, "hold", "--detach", "--json", *secret).stdout)
        # Without the token the caller is a different one, which can't see the task.
        stranger = run("get", task_ref["task_id"])
        assert stranger.returncode == 2
        assert "require the --header of the call" in stranger.stderr
        assert run("get", task_ref["task_id"], *secret).returncode == 4
        assert "my-secret" not in json.dumps(list_saved_calls())
