"""Settings for the tests of the docs."""

import logging
from collections.abc import Iterator

import pytest
from sse_starlette.sse import AppStatus


@pytest.fixture(autouse=True)
def reset_sse_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reset the flag with which a server that a signal stopped ends all later streams of its process."""
    monkeypatch.setattr(AppStatus, "should_exit", False)


@pytest.fixture(autouse=True)
def restore_audit_level() -> Iterator[None]:
    """Restore the level of the audit logger, which snippets change in this process."""
    audit = logging.getLogger("raincheck.audit")
    level = audit.level
    yield
    audit.setLevel(level)
