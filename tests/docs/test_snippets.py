"""The Python snippets of each page run in order, in an empty folder."""

import ast
import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

from tests.support.docs.pages import PAGES, ROOT, name_of, snippets_of, text_of

WITH_SNIPPETS = [page for page in PAGES if list(snippets_of(page))]


@pytest.fixture(autouse=True)
def nothing_blocks_the_event_loop() -> None:
    """Disable the check: a snippet is a program, which imports modules and reads files."""


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("REQUEST_STATE_KEY", "0" * 64)
    for name in ("XDG_STATE_HOME", "RAINCHECK_STORE"):
        # Set before it is removed, so that it is removed again if a snippet sets it.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("empty_folder")
@pytest.mark.parametrize("page", WITH_SNIPPETS, ids=name_of)
def test_the_snippets_of_a_page_run(page: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for line, snippet in snippets_of(page):
        # Empty lines before it, so that an error shows the line of the page.
        padded = "\n" * (line - 1) + snippet
        code = compile(padded, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, names))  # noqa: S307 - our own docs
        else:
            exec(code, names)  # noqa: S102 - likewise


@pytest.mark.usefixtures("empty_folder")
def test_the_example_of_the_readme_prints_what_the_readme_says(capsys: pytest.CaptureFixture[str]) -> None:
    page = ROOT / "README.md"
    test_the_snippets_of_a_page_run(page)
    _, _, after = text_of(page).partition("It prints:\n\n```text\n")
    expected, _, _ = after.partition("```")
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == expected.splitlines()


def test_there_are_snippets_to_run() -> None:
    assert "README.md" in map(name_of, WITH_SNIPPETS)
