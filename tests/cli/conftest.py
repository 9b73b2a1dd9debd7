"""Settings for the tests of the command line."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def nothing_blocks_the_event_loop() -> None:
    """Not here: a command is a whole program, which loads what it needs before anything waits for it."""


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
