"""`raincheck conformance 2025-11-25`: what it prints, and what it ends with."""

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


def test_a_server_that_passes_ends_with_nought_and_a_summary(roles: str) -> None:
    done = run("--tools", roles, "--only", "g1-version", "--only", "g1-list-c*", *fake())
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:4]] == [
        ["passed", "g1-version"],
        ["passed", "g1-list-complete"],
        ["passed", "g1-list-cursor-32602"],
    ]
    assert lines[-1].startswith("fake 1 (")
    assert "3 passed, 0 failed, 0 warnings, 0 skipped in" in lines[-1]


def test_a_tool_that_was_named_and_is_not_there_ends_with_two(tmp_path: Path) -> None:
    file = tmp_path / "roles.toml"
    file.write_text('slow = "nope"')
    done = run("--tools", str(file), "--only", "g1-version", *fake())
    assert done.exit_code == 2
    assert "the server has no tool 'nope', which was named for the role 'slow'" in done.output


def test_checks_without_a_tool_end_with_a_word_on_how_to_name_one() -> None:
    done = run("--only", "g1-cancel-status", *fake())
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1].startswith("1 checks had no tool to call: say with --tools FILE")


def test_a_must_that_is_not_kept_ends_with_one_and_says_why(roles: str) -> None:
    done = run("--tools", roles, "--only", "g1-version", *fake("OldVersion"))
    assert done.exit_code == 1
    assert "protocolVersion is 2025-06-18, and 2025-11-25 was asked for" in done.stdout
    assert "0 passed, 1 failed" in done.stdout


def test_a_should_that_is_not_kept_is_a_warning_and_ends_with_nought(roles: str) -> None:
    done = run("--tools", roles, "--only", "g1-ttl-limited", *fake("EndlessTtl"))
    assert done.exit_code == 0
    assert "1 warning," in done.stdout


def test_json_is_one_document_with_every_check_and_its_outcome(roles: str) -> None:
    done = run("--json", "--tools", roles, "--only", "g1-[vu]*", *fake("OldVersion"))
    assert done.exit_code == 1
    told: dict[str, Any] = json.loads(done.stdout)
    assert (told["suite"], told["protocolVersion"], told["server"]["name"]) == ("g1", "2025-11-25", "fake")
    assert told["summary"] == {"passed": 1, "failed": 1, "warning": 0, "skipped": 3}
    first = told["checks"][0]
    assert (first["id"], first["level"], first["outcome"]) == ("g1-version", "MUST", "failed")
    assert first["detail"] == "protocolVersion is 2025-06-18, and 2025-11-25 was asked for"
    assert first["section"] == "Lifecycle: Version Negotiation"


def test_a_server_that_can_not_be_reached_ends_with_two() -> None:
    done = run("--", sys.executable, str(BROKEN), "ends at once")
    assert done.exit_code == 2
    assert "no such store" in done.stderr
    assert done.stdout == ""


def test_json_is_a_document_also_when_there_is_no_server() -> None:
    done = run("--json", "http://127.0.0.1:9/mcp")
    assert done.exit_code == 2
    assert "could not be reached" in json.loads(done.stdout)["error"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--header", "Authorization", "http://127.0.0.1:9/mcp"], "one has no name or no colon"),
        (["--header", "Authorization: Bearer …", "http://127.0.0.1:9/mcp"], "has characters that can't be sent"),
        (["--header", "A: b", "--", "python", "server.py"], "headers are for a URL"),
        (["--only", "g2-*", "http://127.0.0.1:9/mcp"], "no check has an id like 'g2-*'"),
        (["--tools", "nowhere.toml", "http://127.0.0.1:9/mcp"], "nowhere.toml"),
        (["http://"], "is not a URL of the kind http://host:port/path"),
        (["--timeout", "soon", "http://127.0.0.1:9/mcp"], "Invalid value for '--timeout'"),
        ([], "Missing argument"),
    ],
)
def test_wrong_usage_ends_with_two_and_says_what_is_wrong(words: list[str], told: str) -> None:
    done = run(*words)
    assert done.exit_code == 2
    assert told in " ".join(done.stderr.split())


def test_what_a_header_has_for_a_secret_is_not_repeated() -> None:
    done = run("--header", "Authorization Bearer-sesame", "http://user:sesame@127.0.0.1:9/mcp")
    assert "sesame" not in done.output
    assert "sesame" not in run("http://user:sesame@127.0.0.1:9/mcp").output


def test_the_help_has_examples_and_says_what_it_ends_with() -> None:
    done = run("--help")
    assert done.exit_code == 0
    text = " ".join(done.stdout.split())
    assert "raincheck conformance 2025-11-25 http://127.0.0.1:8000/mcp" in text
    assert "0 if nothing failed" in text
    for option in ("--header", "--other-header", "--tools", "--only", "--json", "--timeout"):
        assert option in text


def command(roles: str) -> list[str]:
    words = ["conformance", "2025-11-25", "--tools", roles, "--only", "g1-version", *fake()]
    return [sys.executable, "-c", MAIN, *words]


def test_there_are_no_colours_where_there_is_no_terminal(roles: str) -> None:
    done = subprocess.run(command(roles), capture_output=True, check=False, timeout=60)
    assert done.returncode == 0
    assert b"passed" in done.stdout
    assert b"\x1b" not in done.stdout
    assert done.stderr == b""


def test_a_terminal_gets_colours_and_a_bar(roles: str) -> None:
    main_end, other_end = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "NO_COLOR": "", "CI": ""}
    with subprocess.Popen(command(roles), stdout=other_end, stderr=other_end, env=env) as process:
        os.close(other_end)
        said = b""
        while piece := read_terminal(main_end):
            said += piece
    os.close(main_end)
    assert process.returncode == 0
    assert b"\x1b[32mpassed" in said
    assert "━".encode() in said


def read_terminal(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # the other end is closed
        return b""


@pytest.mark.cold
def test_without_its_extra_the_program_says_what_to_install() -> None:
    script = f"import sys; sys.modules['typer'] = None; {MAIN}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    how = "pip install 'raincheck[cli]' (in a clone: pip install '.[cli]')"
    assert done.stderr == f"raincheck: 'typer' is missing: install it with {how}\n"


def test_every_check_can_be_chosen_by_its_id() -> None:
    from raincheck.cli.commands.conformance import select_checks

    for check in CHECKS:
        assert select_checks([check.id]) == [check]
