"""Pytest plugin with a manually advanced clock, for tests of tools and stores. Pytest loads it automatically."""

from typing import TYPE_CHECKING

import pytest

# Makes a failed assertion of the kit show the compared values, like one in a test module.
pytest.register_assert_rewrite("raincheck.testing.store_contract", "raincheck.testing.state_machine")

if TYPE_CHECKING:
    from raincheck.testing.clock import FakeClock


@pytest.fixture
def fake_clock() -> "FakeClock":
    """Return a clock that stands still until the test moves it."""
    # Imported here because pytest loads the plugin in every environment that has raincheck installed.
    from raincheck.testing.clock import FakeClock

    return FakeClock()
