"""Tests for `raincheck conformance 2025-11-25`: its output and exit codes."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from raincheck.cli.app import program
from raincheck.conformance import CHECKS
from tests.support import ROOT

FAKE = ROOT / "tests/support/conformance/fake_stdio.py"
BROKEN = FAKE.with_name("broken_servers.py")
NAMES = ("quick", "slow", "tool_error", "protocol_error", "asks", "samples", "reports_progress", "plain", "required")
MAIN = "from raincheck.cli import main; main()"


@pytest.fixture
def roles(tmp_path: Path) -> str:
    file = tmp_path / "roles.toml"
    file.write_text("\n".join(f'{name} = "{name}"' for name in NAMES))
    return str(file)


def run(*words: str) -> Result:
    return CliRunner().invoke(program, ["conformance", "2025-11-25", *words])


def fake(*arguments: str) -> list[str]:
    return ["--", sys.executable, str(FAKE), *arguments]


def test_a_conforming_server_exits_with_zero_and_a_summary(roles: str) -> None:
    done = run("--tools", roles, "--only", "v2025-version", "--only", "v2025-list-c*", *fake())
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:4]] == [
        ["passed", "v2025-version"],
        ["passed", "v2025-list-complete"],
        ["passed", "v2025-list-cursor-32602"],
    ]
    assert lines[-1].startswith("fake 1 (")
    assert "3 passed, 0 failed, 0 warnings, 0 skipped in" in lines[-1]


def test_a_missing_tool_exits_with_two(tmp_path: Path) -> None:
    file = tmp_path / "roles.toml"
    file.write_text('slow = "nope"')
    done = run("--tools", str(file), "--only", "v2025-version", *fake())
    assert done.exit_code == 2
    assert "the server has no tool 'nope', which is configured for the role 'slow'" in done.output


def test_checks_without_a_tool_explain_how_to_assign_one() -> None:
    done = run("--only", "v2025-cancel-status", *fake())
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1].startswith(
        "1 checks had no tool to call: assign your server's tools with --tools FILE"
    )


def test_a_violated_must_exits_with_one_and_the_reason(roles: str) -> None:
    done = run("--tools", roles, "--only", "v2025-version", *fake("OldVersion"))
    assert done.exit_code == 1
    assert "protocolVersion is 2025-06-18; requested 2025-11-25" in done.stdout
    assert "0 passed, 1 failed" in done.stdout


def test_a_violated_should_is_a_warning_and_exits_with_zero(roles: str) -> None:
    done = run("--tools", roles, "--only", "v2025-ttl-limited", *fake("EndlessTtl"))
    assert done.exit_code == 0
    assert "1 warning," in done.stdout


def test_json_is_one_document_with_every_check_and_its_outcome(roles: str) -> None:
    done = run("--json", "--tools", roles, "--only", "v2025-[vu]*", *fake("OldVersion"))
    assert done.exit_code == 1
    reported: dict[str, Any] = json.loads(done.stdout)
    assert (reported["suite"], reported["protocolVersion"], reported["server"]["name"]) == (
        "v2025",
        "2025-11-25",
        "fake",
    )
    assert reported["summary"] == {"passed": 1, "failed": 1, "warning": 0, "skipped": 3}
    first = reported["checks"][0]
    assert (first["id"], first["level"], first["outcome"]) == ("v2025-version", "MUST", "failed")
    assert first["detail"] == "protocolVersion is 2025-06-18; requested 2025-11-25"
    assert first["section"] == "Lifecycle: Version Negotiation"


def test_an_unreachable_server_exits_with_two() -> None:
    done = run("--", sys.executable, str(BROKEN), "ends at once")
    assert done.exit_code == 2
    assert "no such store" in done.stderr
    assert done.stdout == ""


def test_json_output_is_a_document_even_without_a_server() -> None:
    done = run("--json", "http://127.0.0.1:9/mcp")
    assert done.exit_code == 2
    assert "could not be reached" in json.loads(done.stdout)["error"]


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (["--header", "Authorization", "http://127.0.0.1:9/mcp"], "a header has no name or no colon"),
        (["--header", "Authorization: Bearer …", "http://127.0.0.1:9/mcp"], "has characters that HTTP can't send"),
        (["--header", "A: b", "--", "python", "server.py"], "headers need a URL"),
        (["--only", "v2026-*", "http://127.0.0.1:9/mcp"], "no check has an id that matches 'v2026-*'"),
        (["--tools", "nowhere.toml", "http://127.0.0.1:9/mcp"], "nowhere.toml"),
        (["http://"], "is not an HTTP URL: use the form http://host:port/path"),
        (["--timeout", "soon", "http://127.0.0.1:9/mcp"], "Invalid value for '--timeout'"),
        ([], "Missing argument"),
    ],
)
def test_a_usage_error_exits_with_two_and_the_reason(words: list[str], reported: str) -> None:
    done = run(*words)
    assert done.exit_code == 2
    assert reported in " ".join(done.stderr.split())


def test_a_secret_in_an_invalid_header_is_not_printed() -> None:
    done = run("--header", "Authorization Bearer-sesame", "http://user:sesame@127.0.0.1:9/mcp")
    assert "sesame" not in done.output
    assert "sesame" not in run("http://user:sesame@127.0.0.1:9/mcp").output


def test_the_help_has_examples_and_exit_codes() -> None:
    done = run("--help")
    assert done.exit_code == 0
    text = " ".join(done.stdout.split())
    assert "raincheck conformance 2025-11-25 http://127.0.0.1:8000/mcp" in text
    assert "0 no check failed" in text
    for option in ("--header", "--other-header", "--tools", "--only", "--json", "--timeout"):
        assert option in text


def command(roles: str) -> list[str]:
    words = ["conformance", "2025-11-25", "--tools", roles, "--only", "v2025-version", *fake()]
    return [sys.executable, "-c", MAIN, *words]


def test_there_are_no_colours_where_there_is_no_terminal(roles: str) -> None:
    done = subprocess.run(command(roles), capture_output=True, check=False)
    assert done.returncode == 0
    assert b"passed" in done.stdout
    assert b"\x1b" not in done.stdout
    assert done.stderr == b""


def test_a_terminal_gets_colours_and_a_bar(roles: str) -> None:
    main_end, other_end = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "NO_COLOR": "", "CI": ""}
    with subprocess.Popen(command(roles), stdout=other_end, stderr=other_end, env=env) as process:
        os.close(other_end)
        printed = b""
        while piece := read_terminal(main_end):
            printed += piece
    os.close(main_end)
    assert process.returncode == 0
    assert b"\x1b[32mpassed" in printed
    assert "━".encode() in printed


def read_terminal(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # the other end is closed
        return b""


@pytest.mark.cold
def test_without_the_extra_the_program_says_what_to_install() -> None:
    script = f"import sys; sys.modules['typer'] = None; {MAIN}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    how = "pip install 'raincheck[cli]' (in a clone: pip install '.[cli]')"
    assert done.stderr == f"raincheck: 'typer' is missing: install it with {how}\n"


def test_every_check_can_be_chosen_by_its_id() -> None:
    from raincheck.cli.commands.conformance import select_checks

    for check in CHECKS:
        assert select_checks([check.id]) == [check]
