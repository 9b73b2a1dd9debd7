"""The checks as tests: subclass `G1Contract`, say which server, and pytest runs one test for each check."""

import asyncio
import warnings
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import ClassVar, Self

import pytest

from raincheck.conformance.caller import Pace
from raincheck.conformance.check import Check
from raincheck.conformance.checks import CHECKS
from raincheck.conformance.outcome import Outcome, Trouble
from raincheck.conformance.roles import DEFAULTS, Roles
from raincheck.conformance.run import Run
from raincheck.conformance.transport import Target


class ConformanceWarning(UserWarning):
    """A server does not do what it should."""


class G1Contract:
    """Subclasses say what is checked, in `target`, or start it in `serve`."""

    target: ClassVar[Target | None] = None
    """The server: a URL, or the command that starts it."""

    roles: ClassVar[Roles] = DEFAULTS
    """Which tools to call for what."""

    pace: ClassVar[Pace] = Pace()
    """How long things may take."""

    _stack: ClassVar[ExitStack]
    _runner: ClassVar["Runner"]

    @classmethod
    @contextmanager
    def serve(cls) -> Generator[Target]:
        """The server, while it runs. Override it where it has to be started first."""
        if cls.target is None:
            raise NotImplementedError("say which server to check: set `target`, or override `serve`")
        yield cls.target

    # Not fixtures: those of a class are methods, which pytest is about to forbid.

    @classmethod
    def setup_class(cls) -> None:
        with ExitStack() as stack:
            target = stack.enter_context(cls.serve())
            cls._runner = stack.enter_context(Runner(Run(target, cls.roles, cls.pace)))
            cls._stack = stack.pop_all()

    @classmethod
    def teardown_class(cls) -> None:
        cls._stack.close()

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
    def test_g1(self, check: Check) -> None:
        self._runner.check(check)


class Runner:
    """One event loop for all tests of a class, since they share a connection. No plugin for async tests is needed."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._loop = asyncio.Runner()

    def __enter__(self) -> Self:
        try:
            self._loop.run(self._run.__aenter__())
        except BaseException as error:
            self._loop.close()
            if isinstance(error, Trouble):
                pytest.fail(f"the server could not be reached: {error}", pytrace=False)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._loop.run(self._run.__aexit__())
        finally:
            self._loop.close()

    def check(self, check: Check) -> None:
        finding = self._loop.run(self._run.check(check))
        about = f"{check.id} ({check.level}): {check.sentence}\n{finding.detail}"
        if finding.outcome is Outcome.FAILED:
            pytest.fail(about, pytrace=False)
        if finding.outcome is Outcome.SKIPPED:
            pytest.skip(finding.detail)
        if finding.outcome is Outcome.WARNING:
            warnings.warn(ConformanceWarning(about), stacklevel=2)
