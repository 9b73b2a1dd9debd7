"""The checks as pytest tests: subclass `V2025Contract` and name a server, and pytest runs one test per check."""

import asyncio
import warnings
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import ClassVar, Self

import pytest

from raincheck.conformance.caller import Timings
from raincheck.conformance.check import Check
from raincheck.conformance.checks import CHECKS
from raincheck.conformance.connection import CommunicationError
from raincheck.conformance.requirements import CheckOutcome
from raincheck.conformance.roles import DEFAULT_ROLES, Roles
from raincheck.conformance.run import SuiteRun
from raincheck.conformance.transport import ConformanceTarget


class ConformanceWarning(UserWarning):
    """Warning that a server does not meet a SHOULD or SHOULD NOT requirement."""


class V2025Contract:
    """Base class of a conformance test. Subclasses set `target`, or start the server in `serve`."""

    target: ClassVar[ConformanceTarget | None] = None
    """The server under test: a URL, or the command that starts it."""

    roles: ClassVar[Roles] = DEFAULT_ROLES
    """The tool to call for each role."""

    timings: ClassVar[Timings] = Timings()
    """Time limits and intervals of the run."""

    _stack: ClassVar[ExitStack]
    _runner: ClassVar["SyncSuiteRun"]

    @classmethod
    @contextmanager
    def serve(cls) -> Generator[ConformanceTarget]:
        """Yield the server while it runs. Override it if the server must be started first."""
        if cls.target is None:
            raise NotImplementedError("no server to check: set `target`, or override `serve`")
        yield cls.target

    # Not fixtures: pytest is about to forbid class-scoped fixtures that are methods.

    @classmethod
    def setup_class(cls) -> None:
        with ExitStack() as stack:
            target = stack.enter_context(cls.serve())
            cls._runner = stack.enter_context(SyncSuiteRun(SuiteRun(target, cls.roles, cls.timings)))
            cls._stack = stack.pop_all()

    @classmethod
    def teardown_class(cls) -> None:
        cls._stack.close()

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
    def test_check(self, check: Check) -> None:
        self._runner.check(check)


class SyncSuiteRun:
    """Runs the checks of a test class in one event loop, since they share a connection. Needs no async test plugin."""

    def __init__(self, run: SuiteRun) -> None:
        self._run = run
        self._loop = asyncio.Runner()

    def __enter__(self) -> Self:
        try:
            self._loop.run(self._run.__aenter__())
        except BaseException as error:
            self._loop.close()
            if isinstance(error, CommunicationError):
                pytest.fail(f"the server could not be reached: {error}", pytrace=False)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._loop.run(self._run.__aexit__())
        finally:
            self._loop.close()

    def check(self, check: Check) -> None:
        result = self._loop.run(self._run.check(check))
        text = f"{check.id} ({check.level}): {check.requirement}\n{result.detail}"
        if result.outcome is CheckOutcome.FAILED:
            pytest.fail(text, pytrace=False)
        if result.outcome is CheckOutcome.SKIPPED:
            pytest.skip(result.detail)
        if result.outcome is CheckOutcome.WARNING:
            warnings.warn(ConformanceWarning(text), stacklevel=2)
