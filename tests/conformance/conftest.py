"""Settings for the tests of the conformance suite."""

import pytest


@pytest.fixture(autouse=True)
def nothing_blocks_the_event_loop() -> None:
    """Disable the check: the suite starts processes, and imports its HTTP client on first use."""
