"""Tests for `raincheck serve`: each transport, `--store`, `--no-work`, and a graceful stop."""

import asyncio
import json
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.server.auth.provider import TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from pydantic import AnyHttpUrl
from typer.testing import CliRunner

from raincheck.cli.app import program
from raincheck.cli.commands.serve import has_authentication, is_reachable_from_network, parse_endpoint
from tests.support.cli.terminal import PATIENCE, PROGRAM, environment, run, serving

pytestmark = pytest.mark.usefixtures("workshop")

SIGNALS = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])

NOISY = """
import os

print("at the top")
os.system("echo from a child")
from mcp.server.mcpserver import MCPServer
from raincheck import Tasks

mcp = MCPServer("noisy")
tasks = Tasks(mcp, "noisy.db")

@tasks.tool
async def talk() -> str:
    print("in a tool")
    os.system("echo from a child")
    return "done"
"""


Message = Mapping[str, Any]


def ask(*messages: Message) -> str:
    return "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages)


HELLO = {
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "me", "version": "1"}},
}


@contextmanager
def on_stdio(*words: str) -> Generator["subprocess.Popen[str]"]:
    """A running stdio server whose stdin stays open."""
    process = subprocess.Popen(
        [*PROGRAM, "serve", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def say(process: "subprocess.Popen[str]", *messages: Message) -> Message:
    """Say something, and return the next message."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(ask(*messages))
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def test_stdio_serves_the_parent_process() -> None:
    async def talk() -> object:
        server = StdioServerParameters(command=PROGRAM[0], args=[*PROGRAM[1:], "serve", "server.py"], cwd=Path.cwd())
        async with Client(server) as client:
            return (await client.call_tool("add", {"a": 2})).structured_content

    assert asyncio.run(talk()) == {"result": 3.5}


def test_stdout_contains_only_messages_whatever_the_module_prints() -> None:
    Path("noisy.py").write_text(NOISY)
    with on_stdio("noisy.py") as process:
        say(process, HELLO)
        called: Message = {"id": 2, "method": "tools/call", "params": {"name": "talk", "arguments": {}}}
        answer = say(process, {"method": "notifications/initialized"}, called)
        while answer.get("id") != 2:
            answer = say(process)
        assert answer["result"]["content"] == [{"type": "text", "text": "done"}]
        out, err = process.communicate(timeout=PATIENCE)
        assert out == ""
        assert err.count("from a child") == 2
        assert "at the top" in err


def test_the_server_ends_when_its_host_closes_stdin() -> None:
    with on_stdio("server.py") as process:
        say(process, HELLO)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 0


@SIGNALS
def test_a_signal_stops_a_stdio_server_while_stdin_is_open(number: signal.Signals) -> None:
    with on_stdio("server.py") as process:
        say(process, HELLO)
        process.send_signal(number)
        assert process.wait(PATIENCE) == 0


@SIGNALS
def test_a_signal_stops_an_http_server_and_its_tasks_resume_with_the_next(number: signal.Signals) -> None:
    words = [
        *PROGRAM,
        "serve",
        "server.py",
        "--http",
        "127.0.0.1:0",
        "--json",
        "--store",
        "mine.db",
        "--log-format",
        "json",
    ]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), stdin=subprocess.DEVNULL
    )
    assert process.stdout is not None
    where = json.loads(process.stdout.readline())
    assert where["name"] == "workshop"
    task_ref = json.loads(run("call", where["at"], "hold", "--detach", "--json").stdout)
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    ours = f"raincheck: 'workshop' is served at {where['at']}"
    logged = [json.loads(line) for line in err.splitlines() if line != ours]
    (made,) = (one for one in logged if one["logger"] == "raincheck.audit" and one["audit"]["event"] == "created")
    assert made["level"] == "INFO"
    assert task_ref["task_id"].startswith(made["audit"]["task"].removesuffix("..."))
    assert "Traceback" not in err
    Path("go").touch()
    with serving("--http", "127.0.0.1:0", "--store", "mine.db") as url:
        move(where["at"], url)
        assert run("wait", task_ref["task_id"]).stdout == "let go\n"


@pytest.mark.parametrize(("host", "shown"), [("0.0.0.0", "127.0.0.1"), ("[::]", "[::1]")])  # noqa: S104 - what it is about
def test_a_wildcard_address_is_printed_as_a_usable_url_with_a_warning(host: str, shown: str) -> None:
    words = [*PROGRAM, "serve", "server.py", "--http", f"{host}:0", "--json"]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), stdin=subprocess.DEVNULL
    )
    assert process.stdout is not None
    where = json.loads(process.stdout.readline())["at"]
    assert where.startswith(f"http://{shown}:")
    assert run("call", where, "add", "a=1").stdout == "2.5\n"
    process.terminate()
    _, err = process.communicate(timeout=PATIENCE)
    assert "warning: authentication is not configured, so anyone who can reach this host can call these tools" in err


@pytest.mark.parametrize(
    ("host", "is_open"),
    [("127.0.0.1", False), ("::1", False), ("localhost", False), ("::", True), ("example.com", True)],
)
def test_the_warning_is_only_for_servers_reachable_from_the_network(host: str, is_open: bool) -> None:
    assert is_reachable_from_network(host) is is_open


def test_there_is_no_warning_for_a_server_with_authentication() -> None:
    auth = AuthSettings(issuer_url=AnyHttpUrl("https://a.example"), resource_server_url=None)
    assert has_authentication(MCPServer("closed", auth=auth, token_verifier=Verifier()))
    assert not has_authentication(MCPServer("open"))


class Verifier(TokenVerifier):
    async def verify_token(self, token: str) -> None:
        del token


def move(old: str, new: str) -> None:
    """As if the server had the same address as before."""
    with sqlite3.connect(".local/state/raincheck/calls.book") as calls_file:
        calls_file.execute("UPDATE slips SET server = ?, slip = replace(slip, ?, ?)", (new, old, new))
    calls_file.close()


def test_a_second_signal_skips_the_grace_period() -> None:
    Path("patient.py").write_text(
        "from dataclasses import replace\n"
        + Path("server.py")
        .read_text()
        .replace('"tasks.db")', '"patient.db", settings=replace(Tasks.DEFAULTS, grace=600))')
    )
    words = [*PROGRAM, "serve", "patient.py", "--http", "0", "--json"]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment(), stdin=subprocess.DEVNULL
    )
    assert process.stdout is not None
    url = json.loads(process.stdout.readline())["at"]
    assert run("call", url, "hold", "--timeout", "3").returncode == 4
    process.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(4)
    process.terminate()
    assert process.wait(PATIENCE) == 0
    process.stdout.close()


def test_store_overrides_the_store_of_the_file() -> None:
    Path("named.db").unlink(missing_ok=True)
    with serving("--unix", "it.sock", "--store", "named.db"):
        assert run("call", "unix:it.sock", "build", "parts=1").returncode == 0
    tasks = json.loads(CliRunner().invoke(program, ["tasks", "ls", "--store", "named.db", "--json"]).stdout)
    assert [task["tool"] for task in tasks] == ["build"]
    assert not Path("it.sock").exists()


def test_no_work_accepts_tasks_without_running_them() -> None:
    with serving("--http", "0", "--no-work", "--store", "idle.db") as url:
        done = run("call", url, "build", "parts=1", "--timeout", "3")
        assert done.returncode == 4
        assert run("get", json.loads(run("wait", "--json").stdout)[0]["task_id"]).stdout.startswith("working")
    tasks = json.loads(CliRunner().invoke(program, ["tasks", "ls", "--store", "idle.db", "--json"]).stdout)
    assert [task["phase"] for task in tasks] == ["queued"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["workflows.yaml"], "there is no file workflows.yaml"),
        (
            ["server.py", "--stdio", "--http", "8000"],
            "--stdio, --http and --unix exclude each other: start a process for each",
        ),
        (["server.py", "--json"], "stdout is reserved for messages: use --json with --http or --unix"),
        (["server.py", "--http", "here"], "'here' is not an address to listen on: write HOST:PORT"),
        (["nope.py", "--http", "0"], "there is no file nope.py"),
        (["server.py:zzz"], "server.py has no 'zzz': write server.py:"),
        (["server.py", "--http", "0", "--store", "redis://x"], "redis"),
        (["server.py", "--unix", "nowhere/it.sock"], "nowhere"),
    ],
)
def test_an_unservable_target_exits_with_two_and_the_reason(words: list[str], why: str) -> None:
    done = run("serve", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("raincheck: ")
    assert why in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("serve", "server.py", "--http", f"127.0.0.1:{port}")
    assert done.returncode == 2
    assert f"can't listen on 127.0.0.1:{port} (Address already in use): choose another port" in done.stderr


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [
        ("nosuch.invalid:8000", "(there is no host 'nosuch.invalid'): use an address of this machine"),
        ("192.0.2.77:8000", "(Cannot assign requested address): use an address of this machine"),
    ],
)
def test_an_address_that_is_not_local_is_reported(endpoint: str, why: str) -> None:
    done = run("serve", "server.py", "--http", endpoint)
    assert done.returncode == 2
    assert f"can't listen on {endpoint} {why}" in done.stderr


@pytest.mark.parametrize("transport", [[], ["--http", "0"], ["--unix", "it.sock"]])
def test_a_store_that_can_not_be_opened_is_reported_without_hanging(transport: list[str]) -> None:
    Path("folder.db").mkdir(exist_ok=True)
    with on_stdio("server.py", "--store", "folder.db", *transport) as process:
        assert process.wait(PATIENCE) == 2
        assert process.stderr is not None
        last = process.stderr.read().splitlines()[-1]
        assert last.startswith("raincheck: ")
        assert "folder.db" in last


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("8000", ("127.0.0.1", 8000)),
        (":8000", ("127.0.0.1", 8000)),
        ("localhost:80", ("localhost", 80)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_an_endpoint_is_a_host_and_a_port(text: str, endpoint: tuple[str, int]) -> None:
    assert parse_endpoint(text) == endpoint


@pytest.mark.skipif(sys.platform != "linux", reason="every machine has IPv6 there")
def test_an_address_of_ipv6_is_served() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with serving("--http", "[::1]:0") as url:
        assert url.startswith("http://[::1]:")
        assert run("call", url, "add", "a=2").stdout == "3.5\n"
