"""Settings for all tests: Hypothesis profiles, order, timeouts, and a check that none blocks the event loop."""

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
    # The xdist controller, which only distributes tests, starts no programs.
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        _catch_ignored_signals()
        fork_server.share_tls_contexts()
        if fork_server.available():
            forking = ExitStack()
            forking.enter_context(fork_server.installed())
            config.add_cleanup(forking.close)


def pytest_report_header() -> str:
    method = "forks" if fork_server.available() else "executes"
    return f"load: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs; {method} the processes it starts"


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
    """Run long tests first, after the shuffle. Otherwise the run would wait for one that starts last."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


CANCEL_FRACTION = 0.9
"""Fraction of a test's timeout after which its coroutine is cancelled, while its clean-up can still run. A test that is
interrupted from outside leaves its event loop, and its clean-up there never ends."""

HANG_SECONDS = 60
"""Seconds after its timeout at which a hanging test prints its stack and ends its process."""


def seconds_for(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0] if marker else item.config.getini("timeout"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    def abort() -> None:
        sys.stderr.write(f"{item.nodeid} hangs\n")
        faulthandler.dump_traceback(2)
        os._exit(1)

    timer = threading.Timer(seconds_for(item) + HANG_SECONDS, abort)
    timer.daemon = True
    timer.start()
    try:
        return (yield)
    finally:
        timer.cancel()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.obj = _with_timeout(pyfuncitem.obj, CANCEL_FRACTION * seconds_for(pyfuncitem))


def _with_timeout(test: Callable[..., Awaitable[None]], seconds: float) -> Callable[..., Awaitable[None]]:
    @wraps(test)
    async def run(*args: Any, **kwargs: Any) -> None:
        async with asyncio.timeout(seconds):
            await test(*args, **kwargs)

    return run


@pytest.fixture(autouse=True)
def nothing_blocks_the_event_loop() -> Iterator[BlockBuster]:
    """Fail a test that waits for a disk or a lock on the event loop."""
    with blockbuster_ctx("raincheck", excluded_modules=["_pytest", "pytest"]) as blockbuster:
        yield blockbuster


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
