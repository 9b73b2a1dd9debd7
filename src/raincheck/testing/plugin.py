"""The pytest plugin: a clock that goes when told, for tests of tools and stores. Loaded by itself where installed."""

from typing import TYPE_CHECKING

import pytest

# So that a failed assertion of the kit shows what was compared, like one in a test module.
pytest.register_assert_rewrite("raincheck.testing.store_contract", "raincheck.testing.state_machine")

if TYPE_CHECKING:
    from raincheck.testing.clock import FakeClock


@pytest.fixture
def fake_clock() -> "FakeClock":
    """A clock that stands still until it is moved."""
    # Imported here, since the plugin is loaded into every test run of whoever has raincheck installed.
    from raincheck.testing.clock import FakeClock

    return FakeClock()
