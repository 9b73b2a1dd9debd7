"""The checks as pytest tests: subclass `V2025Contract` and name a server, and pytest runs one test per check."""

import asyncio
import warnings
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import ClassVar

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
    _loop: ClassVar[asyncio.Runner]
    """One event loop for all checks, since they share a connection. It needs no async test plugin."""
    _run: ClassVar[SuiteRun]

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
            cls._loop = stack.enter_context(asyncio.Runner())
            cls._run = SuiteRun(target, cls.roles, cls.timings)
            try:
                cls._loop.run(cls._run.__aenter__())
            except CommunicationError as error:
                pytest.fail(f"the server could not be reached: {error}", pytrace=False)
            stack.callback(lambda: cls._loop.run(cls._run.__aexit__()))
            cls._stack = stack.pop_all()

    @classmethod
    def teardown_class(cls) -> None:
        cls._stack.close()

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
    def test_check(self, check: Check) -> None:
        result = self._loop.run(self._run.check(check))
        text = f"{check.id} ({check.level}): {check.requirement}\n{result.detail}"
        if result.outcome is CheckOutcome.FAILED:
            pytest.fail(text, pytrace=False)
        if result.outcome is CheckOutcome.SKIPPED:
            pytest.skip(result.detail)
        if result.outcome is CheckOutcome.WARNING:
            warnings.warn(ConformanceWarning(text), stacklevel=1)
