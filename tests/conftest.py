"""Settings for all tests: which Hypothesis profile runs, and that nothing blocks the event loop."""

import os
from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from hypothesis import HealthCheck, settings

# Small on every run; large on demand: HYPOTHESIS_PROFILE=nightly scripts/test tests/property
settings.register_profile(
    "ci",
    max_examples=50,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
settings.register_profile("nightly", settings.get_profile("ci"), max_examples=2_000, stateful_step_count=60)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(autouse=True)
def nothing_blocks_the_event_loop() -> Iterator[BlockBuster]:
    """A disk or a lock that is waited for on the loop fails the test."""
    with blockbuster_ctx("raincheck", excluded_modules=["_pytest", "pytest"]) as blockbuster:
        yield blockbuster


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
