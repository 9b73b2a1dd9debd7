"""Fixtures for the tests of the command line."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raincheck.cli.output.log import LogHandler
from tests.support.cli.terminal import OLDER_SERVER, SERVER, serving


@pytest.fixture(autouse=True)
def nothing_blocks_the_event_loop() -> None:
    """Not here: a command is a whole program, which loads what it needs before anything waits for it."""


@pytest.fixture(autouse=True)
def commands_leave_no_log_handler() -> Iterator[None]:
    """`serve` and `worker` install one for the rest of their process, which other tests share here."""
    loggers = [logging.getLogger(), logging.getLogger("fastmcp")]
    before = [(one.level, one.propagate) for one in loggers]
    yield
    for one, (level, propagate) in zip(loggers, before, strict=True):
        one.handlers = [handler for handler in one.handlers if not isinstance(handler, LogHandler)]
        one.setLevel(level)
        one.propagate = propagate


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to be in, with no store named. What is loaded from it is forgotten again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("RAINCHECK_STORE", raising=False)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    known = set(sys.modules)
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if name not in known and str(getattr(module, "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture(scope="module")
def workshop_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a server in it, for all tests of a module."""
    folder = tmp_path_factory.mktemp("workshop")
    (folder / "server.py").write_text(SERVER, encoding="utf-8")
    (folder / "older.py").write_text(OLDER_SERVER, encoding="utf-8")
    return folder


@pytest.fixture
def workshop(workshop_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To be in that folder. No calls are under way, and nothing is held up or let go."""
    monkeypatch.chdir(workshop_folder)
    for name in ("go", "hold", ".local/state/raincheck/calls.book"):
        (workshop_folder / name).unlink(missing_ok=True)


@pytest.fixture(scope="module")
def url(workshop_folder: Path) -> Iterator[str]:
    """Where that server is served."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(workshop_folder)
        with serving("--http", "127.0.0.1:0") as where:
            yield where
