"""What docs show lives in `docs_src` and `scripts`, outside of any package: found from the repository's root."""

import logging
from collections.abc import Iterator

import pytest
from sse_starlette.sse import AppStatus


@pytest.fixture(autouse=True)
def streams_are_served_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is stopped by a signal ends all streams of its process, and of every server in it, for good."""
    monkeypatch.setattr(AppStatus, "should_exit", False)


@pytest.fixture(autouse=True)
def what_a_snippet_silences_is_heard_again() -> Iterator[None]:
    """Snippets show how to set loggers, and run in this process."""
    audit = logging.getLogger("raincheck.audit")
    level = audit.level
    yield
    audit.setLevel(level)
