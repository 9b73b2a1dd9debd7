"""Settings for all tests: which Hypothesis profile runs, what runs first, that none hangs or blocks the event loop."""

import asyncio
import faulthandler
import inspect
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import ExitStack
from functools import wraps
from typing import Any

import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from hypothesis import HealthCheck, settings

from tests.support import fork_server

pytest_plugins = ["tests.support.postgres.fixtures"]

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


def pytest_configure(config: pytest.Config) -> None:
    # The process that only hands tests to others starts no programs.
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        _catch_ignored_signals()
        fork_server.share_tls_contexts()
        if fork_server.available():
            forking = ExitStack()
            forking.enter_context(fork_server.installed())
            config.add_cleanup(forking.close)


def pytest_report_header() -> str:
    how = "forks" if fork_server.available() else "executes"
    return f"load: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs; {how} the processes it starts"


def _catch_ignored_signals() -> None:
    """Let programs under test start with default dispositions.

    Child processes inherit which signals are ignored (SIGHUP under nohup, SIGINT in the background of a shell), but not
    which are caught. So this process catches them and does nothing.
    """

    def do_nothing(number: int, frame: object) -> None:
        del number, frame

    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, do_nothing)


@pytest.fixture(autouse=True)
def cold_tests_fork_no_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("cold") is not None:
        monkeypatch.setattr(fork_server, "cold", True)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """After they were shuffled: what is long begins first. All the others would wait for it, if it began last."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


IN_TIME = 0.9
"""Of the time that a test has: then a coroutine is cancelled, while its clean-up can still run. What is cut off from
outside leaves its event loop in the middle, and what is to be cleaned up there waits for good."""

HANGS = 60
"""Seconds beyond its time after which a test ends its process, and says where it hangs, instead of hanging the run."""


def seconds_for(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0] if marker else item.config.getini("timeout"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    def give_up() -> None:
        sys.stderr.write(f"{item.nodeid} hangs\n")
        faulthandler.dump_traceback(2)
        os._exit(1)

    timer = threading.Timer(seconds_for(item) + HANGS, give_up)
    timer.daemon = True
    timer.start()
    try:
        return (yield)
    finally:
        timer.cancel()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.obj = _in_time(pyfuncitem.obj, IN_TIME * seconds_for(pyfuncitem))


def _in_time(test: Callable[..., Awaitable[None]], seconds: float) -> Callable[..., Awaitable[None]]:
    @wraps(test)
    async def run(*args: Any, **kwargs: Any) -> None:
        async with asyncio.timeout(seconds):
            await test(*args, **kwargs)

    return run


@pytest.fixture(autouse=True)
def nothing_blocks_the_event_loop() -> Iterator[BlockBuster]:
    """A disk or a lock that is waited for on the loop fails the test."""
    with blockbuster_ctx("raincheck", excluded_modules=["_pytest", "pytest"]) as blockbuster:
        yield blockbuster


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
