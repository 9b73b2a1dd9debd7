"""Tests for printing results, for people and for programs."""

import json
from typing import Any

import pytest
from mcp_types import CallToolResult

from raincheck.cli.output.results import print_result


def result_of(*content: dict[str, Any], **more: Any) -> CallToolResult:
    return CallToolResult.model_validate({"content": list(content), **more}, by_name=False)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


@pytest.mark.parametrize(
    ("result", "printed"),
    [
        (result_of(text("one"), text("two\nlines")), "one\ntwo\nlines\n"),
        (result_of(text("hello"), structuredContent={"result": "hello"}), "hello\n"),
        (result_of(text("3.5"), structuredContent={"result": 3.5}), "3.5\n"),
        (result_of(text('{"a":1}'), structuredContent={"a": 1}), '{\n  "a": 1\n}\n'),
        (result_of(text("a"), text("b"), structuredContent={"result": ["a", "b"]}), '[\n  "a",\n  "b"\n]\n'),
        (result_of(text("look:"), structuredContent={"a": 1}), 'look:\n{\n  "a": 1\n}\n'),
        (result_of(structuredContent={"ö": "ü"}), '{\n  "ö": "ü"\n}\n'),
        (result_of(), ""),
        (
            result_of({"type": "image", "data": "AAAA", "mimeType": "image/png"}),
            "[image/png, 3 bytes: --json shows them]\n",
        ),
        (result_of({"type": "resource_link", "uri": "file:///x", "name": "it"}), "[it: file:///x]\n"),
        (result_of({"type": "resource", "resource": {"uri": "file:///x", "text": "inside"}}), "inside\n"),
        (
            result_of({"type": "resource", "resource": {"uri": "file:///x", "blob": "AAAA"}}),
            "[file:///x: --json shows it]\n",
        ),
    ],
)
def test_repeated_content_is_printed_once(
    result: CallToolResult, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert print_result(result, as_json=False) == 0
    assert capsys.readouterr() == (printed, "")


def test_an_error_of_the_tool_goes_to_stderr_and_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_result(result_of(text("no"), isError=True), as_json=False) == 1
    assert capsys.readouterr() == ("", "no\n")


def test_output_to_a_file_is_not_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(result_of(text("\x1b[31m[bold]tab\there\x07")), as_json=False)
    assert capsys.readouterr().out == "\x1b[31m[bold]tab\there\x07\n"


def test_output_to_a_terminal_is_escaped(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_result(result_of(text("a\x1b]0;title\x07\n[bold]b")), as_json=False)
    assert capsys.readouterr().out == "a\\x1b]0;title\\x07\n[bold]b\n"


@pytest.mark.parametrize(("is_error", "code"), [(False, 0), (True, 1)])
def test_json_output_is_the_protocols_result(is_error: bool, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    result = result_of(text("x"), structuredContent={"a": 1}, isError=is_error)
    assert print_result(result, as_json=True) == code
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "content": [{"type": "text", "text": "x"}],
        "structuredContent": {"a": 1},
        "isError": is_error,
    } | {name: value for name, value in json.loads(out).items() if name == "resultType"}
    assert err == ""
