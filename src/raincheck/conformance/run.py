"""Run of the suite, and its report.

The checks run one after the other. A server that hangs or crashes fails a check, and does not block the run.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from raincheck.conformance.caller import ConformanceClient, Timings
from raincheck.conformance.check import Check, skip_reason
from raincheck.conformance.checks import CHECKS
from raincheck.conformance.connection import (
    PROTOCOL_VERSION,
    CommunicationError,
    History,
    Message,
    ServerDisconnected,
    is_object,
)
from raincheck.conformance.requirements import CheckOutcome, NotApplicable, RequirementNotMet
from raincheck.conformance.roles import DEFAULT_ROLES, Roles, check_role_names, check_tools_exist
from raincheck.conformance.transport import ConformanceTarget


@dataclass(frozen=True)
class CheckResult:
    """The outcome of a check, with the reason if it did not pass."""

    check: Check
    outcome: CheckOutcome
    detail: str = ""
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.check.id,
            "level": self.check.level,
            "section": self.check.section,
            "requirement": self.check.requirement,
            "outcome": self.outcome,
            "detail": self.detail,
            "seconds": round(self.seconds, 3),
        }


@dataclass
class Report:
    """The results of a run against one server."""

    target: str
    server: Message = field(default_factory=dict[str, Any])
    results: list[CheckResult] = field(default_factory=list[CheckResult])
    seconds: float = 0.0

    def with_outcome(self, outcome: CheckOutcome) -> Sequence[CheckResult]:
        return [result for result in self.results if result.outcome is outcome]

    @property
    def counts(self) -> dict[CheckOutcome, int]:
        counter = Counter(result.outcome for result in self.results)
        return {outcome: counter[outcome] for outcome in CheckOutcome}

    @property
    def has_failed(self) -> bool:
        return bool(self.counts[CheckOutcome.FAILED])

    @property
    def summary(self) -> str:
        counts = self.counts
        parts = [
            f"{counts[CheckOutcome.PASSED]} passed",
            f"{counts[CheckOutcome.FAILED]} failed",
            f"{counts[CheckOutcome.WARNING]} {'warning' if counts[CheckOutcome.WARNING] == 1 else 'warnings'}",
            f"{counts[CheckOutcome.SKIPPED]} skipped",
        ]
        return f"{', '.join(parts)} in {self.seconds:.1f} s"

    def as_json(self) -> dict[str, Any]:
        return {
            "suite": "v2025",
            "protocolVersion": PROTOCOL_VERSION,
            "target": self.target,
            "server": self.server,
            "summary": {str(outcome): count for outcome, count in self.counts.items()},
            "seconds": round(self.seconds, 3),
            "checks": [result.as_json() for result in self.results],
        }


RETRIED_OUTCOMES = (CheckOutcome.FAILED, CheckOutcome.WARNING)
MAX_UNANSWERED = 8
"""Consecutive unanswered attempts after which the run stops: each further one would cost its whole timeout."""


class SuiteRun:
    """A server under test: `async with SuiteRun(target) as run`. Checks share a connection until it breaks."""

    def __init__(self, target: ConformanceTarget, roles: Roles = DEFAULT_ROLES, timings: Timings | None = None) -> None:
        self.target = target
        check_role_names(roles)
        self.roles = roles
        self.timings = timings or Timings()
        self._caller: ConformanceClient | None = None
        self._is_used = False
        self._retry_problems: list[str] = []
        self._history = History()
        self._unanswered = 0
        self._abort_reason: str | None = None

    async def __aenter__(self) -> Self:
        """Connect. Raises `CommunicationError` if the server can't be reached, or lacks a tool that a role names."""
        self._caller = await self._connect()
        try:
            check_tools_exist(self.roles, self._caller.tools)
        except CommunicationError:
            await self._disconnect()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._disconnect()

    @property
    def server(self) -> Message:
        """The `serverInfo` that the server declares."""
        info = self._caller.initialized.get("serverInfo") if self._caller is not None else None
        return info if is_object(info) else {}

    async def check(self, check: Check) -> CheckResult:
        """Run one check. If it fails or warns on a connection that was used before, retry it once on a new one."""
        started_at = time.monotonic()
        was_used, self._is_used = self._is_used and self._caller is not None, True
        outcome, detail = await self._run_check(check)
        if was_used and outcome in RETRIED_OUTCOMES and self._abort_reason is None:
            await self._disconnect()
            second = await self._run_check(check)
            if second[0] is CheckOutcome.PASSED:
                self._retry_problems.append(
                    f"{check.id} did not pass on a used connection ({detail}), but passed on a new one"
                )
            if second[0] is not CheckOutcome.SKIPPED:
                outcome, detail = second
        return CheckResult(check, outcome, detail, time.monotonic() - started_at)

    async def _run_check(self, check: Check) -> tuple[CheckOutcome, str]:
        if self._abort_reason is not None:
            return CheckOutcome.FAILED, f"not run: {self._abort_reason}"
        try:
            caller = self._caller = self._caller or await self._connect()
        except CommunicationError as error:
            self._abort_reason = f"reconnecting to the server failed: {error}"
            return CheckOutcome.FAILED, self._abort_reason
        if (reason := skip_reason(caller, check.needs)) is not None:
            return CheckOutcome.SKIPPED, reason
        try:
            outcome, detail = await self._run_body(caller, check)
        except CommunicationError as error:
            await self._disconnect()
            self._unanswered += 1
            if self._unanswered >= MAX_UNANSWERED:
                self._abort_reason = (
                    f"the server did not answer {MAX_UNANSWERED} times in a row, the last time in {check.id}"
                )
            # A missing answer counts at the level of the check. A server that is gone fails a check of any level.
            return (CheckOutcome.FAILED if isinstance(error, ServerDisconnected) else _unmet(check)), str(error)
        self._unanswered = 0
        await self._clean_up(caller, check)
        return outcome, detail

    async def _run_body(self, caller: ConformanceClient, check: Check) -> tuple[CheckOutcome, str]:
        """Return the outcome of a check. Raises `CommunicationError` if communication with the server fails."""
        # Twice the time of one answer: the request that waits for a missing answer times out first and reports it.
        limit = 2 * caller.result_timeout
        try:
            async with asyncio.timeout(limit):
                await check.body(caller)
        except RequirementNotMet as unmet:
            return _unmet(check), str(unmet)
        except NotApplicable as inapplicable:
            return CheckOutcome.SKIPPED, str(inapplicable)
        except CommunicationError:
            raise
        except TimeoutError:
            unanswered = ", ".join(request.method for request in caller.unanswered) or "none"
            raise CommunicationError(f"not finished after {limit:g} s; unanswered requests: {unanswered}") from None
        except Exception as error:  # noqa: BLE001 - a server can send anything, and a check may not be ready for it
            return CheckOutcome.FAILED, f"the check itself failed: {error!r}"
        return CheckOutcome.PASSED, ""

    async def _clean_up(self, caller: ConformanceClient, check: Check) -> None:
        """Cancel the tasks that the check left running. An error here does not fail the check, which is finished."""
        try:
            async with asyncio.timeout(self.timings.timeout):
                await caller.clean_up()
        except (CommunicationError, TimeoutError) as error:
            self._retry_problems.append(
                f"a task that {check.id} left running could not be cancelled ({error or 'no answer'})"
            )
            await self._disconnect()

    async def _connect(self) -> ConformanceClient:
        caller = ConformanceClient(self.target, self.roles, self.timings, history=self._history)
        await caller.connect()
        caller.retry_problems = self._retry_problems
        return caller

    async def _disconnect(self) -> None:
        caller, self._caller = self._caller, None
        if caller is not None:
            with contextlib.suppress(CommunicationError):
                await caller.close()


def _unmet(check: Check) -> CheckOutcome:
    return CheckOutcome.FAILED if check.level.is_binding else CheckOutcome.WARNING


async def run_suite(
    target: ConformanceTarget,
    roles: Roles = DEFAULT_ROLES,
    *,
    checks: Iterable[Check] = CHECKS,
    timings: Timings | None = None,
    on_result: Callable[[CheckResult], None] = lambda _: None,
) -> Report:
    """Run checks against a server, and report each result as it arrives.

    Raises:
        CommunicationError: the server can't be reached at all, or lacks a tool that a role names.
    """
    started_at = time.monotonic()
    report = Report(str(target))
    async with SuiteRun(target, roles, timings) as run:
        report.server = run.server
        for check in checks:
            result = await run.check(check)
            report.results.append(result)
            on_result(result)
    report.seconds = time.monotonic() - started_at
    return report
