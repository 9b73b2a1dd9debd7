"""Settings for all tests: which Hypothesis profile runs, what runs first, and that nothing blocks the event loop."""

import os
from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from hypothesis import HealthCheck, settings

pytest_plugins = ["postgres_fixtures"]

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


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """After they were shuffled: what is long begins first. All the others would wait for it, if it began last."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(autouse=True)
def nothing_blocks_the_event_loop() -> Iterator[BlockBuster]:
    """A disk or a lock that is waited for on the loop fails the test."""
    with blockbuster_ctx("raincheck", excluded_modules=["_pytest", "pytest"]) as blockbuster:
        yield blockbuster


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
