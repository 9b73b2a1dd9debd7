"""Settings for the tests of the command line."""

import pytest


@pytest.fixture(autouse=True)
def nothing_blocks_the_event_loop() -> None:
    """Not here: a command is a whole program, which loads what it needs before anything waits for it."""
