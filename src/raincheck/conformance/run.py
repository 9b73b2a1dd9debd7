"""Runs the checks one after the other. A server that hangs or dies fails a check, and does not hold up the run.

What a run of the suite found.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from raincheck.conformance.caller import Caller, Pace
from raincheck.conformance.check import Check, why_not
from raincheck.conformance.checks import CHECKS
from raincheck.conformance.messages import VERSION, History, Message, is_object
from raincheck.conformance.outcome import Gone, Inapplicable, Outcome, Trouble, Unmet
from raincheck.conformance.roles import DEFAULTS, Roles, check_named, check_names
from raincheck.conformance.transport import Target


@dataclass(frozen=True)
class Finding:
    """How a check ended, and why if it did not pass."""

    check: Check
    outcome: Outcome
    detail: str = ""
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.check.id,
            "level": self.check.level,
            "section": self.check.section,
            "requirement": self.check.sentence,
            "outcome": self.outcome,
            "detail": self.detail,
            "seconds": round(self.seconds, 3),
        }


@dataclass
class Report:
    """All that a run found of one server."""

    target: str
    server: Message = field(default_factory=dict[str, Any])
    findings: list[Finding] = field(default_factory=list[Finding])
    seconds: float = 0.0

    def with_outcome(self, outcome: Outcome) -> Sequence[Finding]:
        return [finding for finding in self.findings if finding.outcome is outcome]

    @property
    def counts(self) -> dict[Outcome, int]:
        found = Counter(finding.outcome for finding in self.findings)
        return {outcome: found[outcome] for outcome in Outcome}

    @property
    def has_failed(self) -> bool:
        return bool(self.counts[Outcome.FAILED])

    @property
    def summary(self) -> str:
        counts = self.counts
        parts = [
            f"{counts[Outcome.PASSED]} passed",
            f"{counts[Outcome.FAILED]} failed",
            f"{counts[Outcome.WARNING]} {'warning' if counts[Outcome.WARNING] == 1 else 'warnings'}",
            f"{counts[Outcome.SKIPPED]} skipped",
        ]
        return f"{', '.join(parts)} in {self.seconds:.1f} s"

    def as_json(self) -> dict[str, Any]:
        return {
            "suite": "g1",
            "protocolVersion": VERSION,
            "target": self.target,
            "server": self.server,
            "summary": {str(outcome): count for outcome, count in self.counts.items()},
            "seconds": round(self.seconds, 3),
            "checks": [finding.as_json() for finding in self.findings],
        }


BAD = (Outcome.FAILED, Outcome.WARNING)
ENDURANCE = 8
"""After so many tries in a row without an answer, the rest is given up: each would only cost its time."""


class Run:
    """A server under check: `async with Run(target) as run`. The connection is kept for as long as it lasts."""

    def __init__(self, target: Target, roles: Roles = DEFAULTS, pace: Pace | None = None) -> None:
        self.target = target
        check_names(roles)
        self.roles = roles
        self.pace = pace or Pace()
        self._caller: Caller | None = None
        self._is_used = False
        self._unsteady: list[str] = []
        self._history = History()
        self._in_vain = 0
        self._given_up: str | None = None

    async def __aenter__(self) -> Self:
        """Connect. Raises `Trouble` if the server can't be reached, or lacks a tool that it was said to have."""
        self._caller = await self._connect()
        try:
            check_named(self.roles, self._caller.tools)
        except Trouble:
            await self._disconnect()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._disconnect()

    @property
    def server(self) -> Message:
        """Who the server says it is."""
        said = self._caller.connection.initialized.get("serverInfo") if self._caller is not None else None
        return said if is_object(said) else {}

    async def check(self, check: Check) -> Finding:
        """Do one check. What goes wrong on a connection that was used before has a second chance on a new one."""
        began = time.monotonic()
        was_used, self._is_used = self._is_used and self._caller is not None, True
        outcome, detail = await self._judge(check)
        if was_used and outcome in BAD and self._given_up is None:
            await self._disconnect()
            second = await self._judge(check)
            if second[0] is Outcome.PASSED:
                self._unsteady.append(f"{check.id} went wrong once ({detail}), and well on a new connection")
            if second[0] is not Outcome.SKIPPED:
                outcome, detail = second
        return Finding(check, outcome, detail, time.monotonic() - began)

    async def _judge(self, check: Check) -> tuple[Outcome, str]:
        if self._given_up is not None:
            return Outcome.FAILED, f"not tried: {self._given_up}"
        try:
            caller = self._caller = self._caller or await self._connect()
        except Trouble as trouble:
            self._given_up = f"the server could not be reached again: {trouble}"
            return Outcome.FAILED, self._given_up
        if (reason := why_not(caller, check.needs)) is not None:
            return Outcome.SKIPPED, reason
        try:
            outcome, detail = await self._try(caller, check)
        except Trouble as trouble:
            await self._disconnect()
            self._in_vain += 1
            if self._in_vain >= ENDURANCE:
                self._given_up = f"nothing was answered {ENDURANCE} times in a row, the last time in {check.id}"
            # No answer is what the check is about. A server that is gone is worse, whatever it is about.
            return (Outcome.FAILED if isinstance(trouble, Gone) else _unmet(check)), str(trouble)
        self._in_vain = 0
        await self._clear_up(caller, check)
        return outcome, detail

    async def _try(self, caller: Caller, check: Check) -> tuple[Outcome, str]:
        """What comes of a check. Raises `Trouble` where the server can't be talked with."""
        # Twice what one answer may take: the answer that is missing is told of by whoever waits for it.
        limit = 2 * caller.patience
        try:
            async with asyncio.timeout(limit):
                await check.body(caller)
        except Unmet as unmet:
            return _unmet(check), str(unmet)
        except Inapplicable as inapplicable:
            return Outcome.SKIPPED, str(inapplicable)
        except Trouble:
            raise
        except TimeoutError:
            left = ", ".join(one.method for one in caller.connection.unanswered) or "nothing"
            raise Trouble(f"not done after {limit:g} s; without an answer: {left}") from None
        except Exception as error:  # noqa: BLE001 - a server can send anything, and a check may not be ready for it
            return Outcome.FAILED, f"the check could not be done: {error!r}"
        return Outcome.PASSED, ""

    async def _clear_up(self, caller: Caller, check: Check) -> None:
        """Cancel what is left. A server that has trouble with it does not fail the check that is over."""
        try:
            async with asyncio.timeout(self.pace.timeout):
                await caller.clear_up()
        except (Trouble, TimeoutError) as trouble:
            self._unsteady.append(f"a task that {check.id} left could not be cancelled ({trouble or 'no answer'})")
            await self._disconnect()

    async def _connect(self) -> Caller:
        caller = await Caller.connect(self.target, self.roles, self.pace, history=self._history)
        caller.unsteady = self._unsteady
        return caller

    async def _disconnect(self) -> None:
        caller, self._caller = self._caller, None
        if caller is not None:
            with contextlib.suppress(Trouble):
                await caller.connection.close()


def _unmet(check: Check) -> Outcome:
    return Outcome.FAILED if check.level.binds else Outcome.WARNING


async def run_suite(
    target: Target,
    roles: Roles = DEFAULTS,
    *,
    checks: Iterable[Check] = CHECKS,
    pace: Pace | None = None,
    told: Callable[[Finding], None] = lambda _: None,
) -> Report:
    """Run checks against a server, telling each finding as it comes.

    Raises:
        Trouble: the server can't be reached at all.
    """
    began = time.monotonic()
    report = Report(str(target))
    async with Run(target, roles, pace) as run:
        report.server = run.server
        for check in checks:
            finding = await run.check(check)
            report.findings.append(finding)
            told(finding)
    report.seconds = time.monotonic() - began
    return report
