"""Tests for server targets as typed in a shell, with the errors for invalid ones."""

import os
import sys
from pathlib import Path

import pytest

from raincheck.cli.commands.calls import check_quotes
from raincheck.cli.exit_codes import UsageError
from raincheck.cli.remote.target import CommandTarget, UnixTarget, UrlTarget, parse_target
from tests.support.cli.terminal import run

pytestmark = pytest.mark.usefixtures("folder")

QUOTES = "if it belongs to the command of the server, put the whole command in quotes, as in raincheck call"


def test_a_url_is_a_url() -> None:
    target = parse_target("https://example.com/mcp", {"X": "y"})
    assert isinstance(target, UrlTarget)
    assert target.name == target.display_name == "https://example.com/mcp"
    assert not target.ends_with_command


def test_a_command_is_split_as_in_a_shell_and_runs_again_from_another_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = parse_target(f"{sys.executable} -c 'print(1)'", {})
    assert isinstance(target, CommandTarget)
    assert target.name == f"cd {Path.cwd()} && {sys.executable} -c 'print(1)'"
    assert target.display_name == f"{sys.executable} -c 'print(1)'"
    assert target.ends_with_command
    name, here = target.name, Path.cwd()
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    again = parse_target(name, {})
    assert again.name == name
    assert str(here) != os.getcwd()  # noqa: PTH109 - as the command would see it


def test_a_folder_with_blanks_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path("two words")
    folder.mkdir()
    monkeypatch.chdir(folder)
    target = parse_target(sys.executable, {})
    assert f"cd '{Path.cwd()}' && " in target.name
    assert parse_target(target.name, {}).name == target.name


def test_a_socket_can_be_reached_from_another_folder() -> None:
    Path("it.sock").touch()
    target = parse_target("unix:it.sock", {})
    assert isinstance(target, UnixTarget)
    assert (target.display_name, target.name) == ("unix:it.sock", f"unix:{Path.cwd()}/it.sock")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'' names no server: name a server: "),
        ("nope --x", "there is no program 'nope' here or on your PATH: name a server: \"raincheck serve server.py\""),
        ("./nope", "there is no program './nope' here or on your PATH"),
        (
            "localhost:8000/mcp",
            "there is no program 'localhost:8000/mcp' here or on your PATH: write http://localhost:8000",
        ),
        ("example.com:80", "write http://example.com:80"),
        ("server.py", 'server.py is a file, not a command: write "raincheck serve server.py"'),
        ("server.py:mcp", 'write "raincheck serve server.py:mcp"'),
        ("python 'server.py", "can't be parsed (No closing quotation): quote it as in a shell"),
        ("cd nowhere && python server.py", "to start python server.py in: create it first"),
        (
            "TOKEN=abcd python server.py",
            "no program 'TOKEN=...' here or on your PATH: set the variable before `raincheck`",
        ),
        ("unix:nope.sock", "nope.sock: start the server, or check the path"),
    ],
)
def test_an_invalid_server_is_refused_with_a_suggestion(text: str, why: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_target(text, {})
    assert why in str(refused.value)


@pytest.mark.parametrize("text", ["python server.py", "unix:it.sock"])
def test_headers_are_only_for_urls(text: str) -> None:
    with pytest.raises(UsageError, match="--header is only for servers with a URL"):
        parse_target(text, {"Authorization": "Bearer x"})


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ["python", "server.py", "build", "parts=1", "tags:=[1, 2]"],
            f"'server.py' is a file, not a tool: {QUOTES} 'python server.py' build parts=1 'tags:=[1, 2]'",
        ),
        (["python", "server.py"], "as in raincheck call 'python server.py'"),
        (
            ["raincheck", "serve", "server.py", "build", "-"],
            f"'server.py' is not an argument of the form name=value: {QUOTES} 'raincheck serve server.py' build -",
        ),
        (["docker", "run", "image", "build"], "as in raincheck call 'docker run image' build"),
        (["python", "server.py", "build", "token=SECRET"], "as in raincheck call 'python server.py' build token=..."),
    ],
)
def test_missing_quotes_are_reported_before_the_server_is_started(words: list[str], why: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_quotes(words[0], words[1], words[2:])
    assert str(refused.value).endswith(why)
    done = run("call", *words)
    assert (done.returncode, done.stderr) == (2, f"raincheck: {refused.value}\n")


@pytest.mark.parametrize(
    "words",
    [
        ["server"],
        ["server", "build", "parts=1", "@more.json", "-"],
        ["python server.py", "build", "parts"],
        ["http://127.0.0.1:8000/mcp", "server.py", "parts"],
        ["unix:it.sock", "server.py"],
    ],
)
def test_words_that_may_be_arguments_are_accepted(words: list[str]) -> None:
    check_quotes(words[0], words[1] if len(words) > 1 else None, words[2:])


def test_a_tool_may_have_the_name_of_a_file_unless_it_looks_like_a_path() -> None:
    for name in ("deploy", "deploy.toml"):
        Path(name).touch()
    check_quotes("./srv", "deploy", [])
    for looks_so in ("deploy.toml", "./deploy"):
        with pytest.raises(UsageError, match="is a file, not a tool"):
            check_quotes("./srv", looks_so, [])
