"""Servers that can't be called: dead, silent, or no MCP servers at all. What is said of them helps."""

import contextlib
import json
import shlex
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.cli.terminal import COMMAND, held, run, run_apart, serving

pytestmark = pytest.mark.usefixtures("workshop")


def program(text: str) -> str:
    return shlex.join([sys.executable, "-c", text])


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (program("print(1)"), ["it ended, or hung up, before it answered: see that it is an MCP server"]),
        (program("raise SystemExit('no key is set')"), ["it ended", "\nIt said:\n  no key is set\n"]),
        (program("import time; time.sleep(60)"), ["did not answer within 1 s", "--connect-timeout"]),
        (program("while True: print('y' * 99)"), ["did not answer within 1 s"]),
        (program("import sys\nfor line in sys.stdin: print(line, flush=True)"), ["it does not speak MCP"]),
        ("http://127.0.0.1:9/mcp", ["nothing listens there: start the server, or mend the address"]),
        ("http://no.such.host.invalid/mcp", ["can't be reached"]),
        ("http:///mcp", ["it names no host: mend the address"]),
    ],
    ids=["ends", "ends with words", "says nothing", "says nonsense", "echoes", "refuses", "no host", "no address"],
)
def test_a_server_that_can_not_be_called_ends_with_two_and_says_what_to_do(server: str, words: list[str]) -> None:
    done = run("call", server, "add", "a=1", "--connect-timeout", "1" if "within 1 s" in words[0] else "30")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("raincheck: ")
    assert "Traceback" not in done.stderr
    for part in words:
        assert part in done.stderr


def test_what_is_secret_in_its_command_is_not_said_however_it_is_quoted() -> None:
    server = f"""{program("print(1)")} --token abcdef123 --password "it's-mine" --pass xyz"""
    done = run("call", server, "add", "a=1")
    assert done.returncode == 2
    assert "--token ... --password ... --pass ... can't be reached" in done.stderr


def test_what_libraries_log_of_it_is_not_printed() -> None:
    done = run_apart("call", program("print('nonsense')"), "add", "--json")
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
        ("401-html", "it wants to know who you are: give --header 'Authorization: Bearer …'"),
        ("403-html", "it does not let you in: give another --header"),
        ("404-html", "there is no MCP server at this address, which usually ends in /mcp"),
        ("405-html", "there is no MCP server at this address, which usually ends in /mcp"),
        ("200-html", "there is no MCP server at this address, which usually ends in /mcp"),
        ("200-json", "there is no MCP server at this address, which usually ends in /mcp"),
        ("302-html", "Redirect to http://elsewhere.example/mcp not followed"),
        ("500-html", "it has an error of its own (HTTP 500): see what it logs"),
    ],
)
def test_a_url_that_is_no_mcp_server_is_said_to_be_none(odd: str, path: str, why: str) -> None:
    done = run("call", f"{odd}/{path}", "add", "a=1")
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_server_that_dies_while_it_is_called_leaves_nobody_in_doubt_about_the_doubt() -> None:
    done = run("call", COMMAND, "die")
    assert done.returncode == 1
    assert "broke while 'die' was called: it may have run, or not. Look before you call it again" in done.stderr
    assert "\nIt said:\n  the workshop opens" in done.stderr


def test_a_server_that_is_away_later_leaves_its_calls_in_the_book() -> None:
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(serving("--http", "127.0.0.1:0"))
        assert run("call", url, "hold", "--detach").returncode == 0
        stack.close()
        (slip,) = held()
        done = run("wait", slip["task_id"])
        assert done.returncode == 2
        assert "nothing listens there" in done.stderr
        assert held() == [slip]


def test_a_token_is_sent_and_is_not_kept() -> None:
    with serving("--http", "127.0.0.1:0") as url:
        secret = ["--header", "Authorization: Bearer my-secret"]
        slip = json.loads(run("call", url, "hold", "--detach", "--json", *secret).stdout)
        # Whoever sends no token is somebody else, to whom the task is not there.
        stranger = run("get", slip["task_id"])
        assert stranger.returncode == 2
        assert "want the --header that it was called with" in stranger.stderr
        assert run("get", slip["task_id"], *secret).returncode == 4
        assert "my-secret" not in json.dumps(held())
