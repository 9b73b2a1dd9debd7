"""Settings for the tests of the conformance suite."""

import pytest


@pytest.fixture(autouse=True)
def nothing_blocks_the_event_loop() -> None:
    """Not here: the suite starts processes, and loads its HTTP client when it first needs it."""
