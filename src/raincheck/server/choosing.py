"""Whether a call is worth a task, and how long to wait for its end first. Decided from how long such calls take.

To answer a call with its result is best for everybody, if it comes soon. To wait for one that does not come soon is a
waste: its caller could have had its task, and gone on. So the wait is as long as costs least, over the calls that were
measured: a call that does not end within it has waited for nothing, and is a task besides, which costs its caller a
poll or two.
"""

from dataclasses import dataclass
from typing import Self

from raincheck.core.durations import Sketch
from raincheck.server.policy import TaskPolicy
from raincheck.wire.spoken import in_words

ENOUGH = 10
"""Calls that have to be measured before they count more than what the author expects."""

MARGIN = 2.0
"""How many times as long as the author expects a call may well take."""

SLACK = 0.25
"""Seconds more, in which the end of a call gets around."""

TASK_COSTS = 2.0
"""Seconds: what it costs a caller to get a task instead of a result."""

LONGEST_CHOSEN = 10.0
"""Seconds. What takes longer is worth a task, however sure it is to end."""

SOON = 5.0
"""Seconds, for a caller without tasks whose call will not end in time: what goes wrong mostly does so by then."""

HOPELESS = 0.1
"""The share of calls that end in time, below which it is no use to wait."""

NOT_WORTH_IT = "it is not worth waiting"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of how long the calls of a tool take."""

    sketch: Sketch
    source: str
    """Where that is from, in words."""
    expected: float | None = None
    """Seconds, where it is only what the author expects."""

    @classmethod
    def of(cls, measured: Sketch, expected: float | None) -> Self:
        """What was measured or, until that is enough, what the author expects."""
        if measured.total >= ENOUGH:
            return cls(measured, f"of the latest {measured.total} calls")
        if expected is not None:
            return cls(Sketch().with_one(expected), f"its author expects {in_words(expected)}", expected)
        return cls(Sketch(), f"{measured.total} of {ENOUGH} calls are measured, and no expected= was declared")

    def left_after(self, passed: float) -> float | None:
        """Seconds that a call usually has left that has taken so long already; None if nobody knows."""
        lasts = self.sketch.quantile(0.5, as_long_as=passed)
        return None if lasts is None else max(lasts - passed, 0.0)


@dataclass(frozen=True, slots=True)
class Choice:
    """How many seconds a call waits for its end, and why."""

    seconds: float
    why: str


def choose_inline(policy: TaskPolicy, known: Known) -> Choice:
    """For a caller that can take a task, and is handed one after the wait."""
    if policy.inline_for is not None:
        return Choice(policy.inline_for, "set by its author")
    if policy.mode == "required":
        return Choice(0.0, "it is to run as a task")
    if not known.sketch.total:
        return Choice(0.0, known.source)
    if known.expected is not None:
        wait = known.expected * MARGIN + SLACK
        return Choice(wait, known.source) if wait <= LONGEST_CHOSEN else Choice(0.0, f"{known.source}: {NOT_WORTH_IT}")
    return _cheapest(known)


def _cheapest(known: Known) -> Choice:
    """The wait that costs its callers least on average, beyond the work itself."""
    total, passed = known.sketch.total, 0
    best, least, share = 0.0, TASK_COSTS, 0.0
    for edge, count in zip(known.sketch.edges, known.sketch.counts.values(), strict=True):
        wait = edge + SLACK
        if wait > LONGEST_CHOSEN:
            break
        passed += count
        cost = (1.0 - passed / total) * (TASK_COSTS + wait)
        if cost < least:
            best, least, share = wait, cost, passed / total
    if not best:
        return Choice(
            0.0, f"{known.source}, {passed / total:.0%} end within {in_words(LONGEST_CHOSEN)}: {NOT_WORTH_IT}"
        )
    return Choice(best, f"{known.source}, {share:.0%} end within {in_words(best)}")


def choose_plain(policy: TaskPolicy, known: Known, plain_wait: float) -> Choice:
    """For a caller that can't, and is told after the wait how to go on."""
    share = known.sketch.share_within(plain_wait)
    if not known.sketch.total or share >= HOPELESS:
        return Choice(plain_wait, "such callers wait as long as plain_wait says")
    soon = min(max(SOON, policy.inline_for or 0.0), plain_wait)
    if known.expected is not None:
        return Choice(soon, f"{known.source}: it is no use to wait")
    return Choice(soon, f"{known.source}, {share:.0%} end within {in_words(plain_wait)}: it is no use to wait")
