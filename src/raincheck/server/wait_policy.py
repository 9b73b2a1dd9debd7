"""Decide how long a call waits for its result before it becomes a task, and how often its caller polls.

A result that comes soon is the best answer to a call. To wait for one that does not come soon is a waste: its caller
could have had its task, and continued. So the wait is the one that costs least over the measured calls. A call that
does not end within the wait has waited in vain and is a task besides, which costs its caller a poll or two.

A caller polls at the interval that the server suggests. If it is too short, many callers keep the server busy with
answers that report no change. If it is too long, results stay unread. So the interval follows the time that the task
probably has left, estimated from how long tasks of the same tool take, or without an estimate, the elapsed time.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from raincheck.clock import Clock
from raincheck.core.histogram import DurationHistogram
from raincheck.core.lifecycle import Status
from raincheck.core.owner import Owner
from raincheck.core.records import Task
from raincheck.server.errors import over_limit
from raincheck.server.tools.policy import TaskPolicy
from raincheck.wire.fallback_text import format_duration

MIN_INTERVAL = 0.5
MAX_INTERVAL = 60.0
MAX_INPUT_INTERVAL = 10.0
"""Seconds between polls of a task that waits for its caller: an answer comes at any time, and then the task resumes."""

INTERVAL_DIVISOR = 8
"""Divides the time that is left into the poll interval. The time that has passed is divided by twice as much."""

MAX_TRACKED_POLLS = 1_000
"""Polls that are remembered: many more than a server answers in the time within which the next one is too fast."""

BUSY_POLL_COUNT = 64
"""Polls in flight at once, from which on polls that come much too fast are rejected."""

MAX_RATE_FACTOR = 10
"""Factor by which polls of a busy server may be faster than `MIN_INTERVAL` before they are rejected."""


class WaitPolicy:
    """Estimates how long calls take, suggests poll intervals and rejects excessive polls, for one server.

    `measured` and `expected` return what was measured of the calls of a tool, and the seconds that its author expects.
    """

    def __init__(
        self,
        clock: Clock,
        measured: Callable[[str], DurationHistogram],
        expected: Callable[[str], float | None],
    ) -> None:
        self._clock = clock
        self._measured = measured
        self._expected = expected
        self._polled: OrderedDict[str, float] = OrderedDict()
        self._in_flight = PollsInFlight()

    def estimate_duration(self, tool: str) -> "DurationEstimate":
        """Return an estimate of the duration of the calls of a tool."""
        return DurationEstimate.from_measurements(self._measured(tool), self._expected(tool))

    def estimate_remaining(self, task: Task) -> float | None:
        """Return the seconds that a task probably has left; None if that is unknown."""
        passed = (self._clock.now() - task.created_at).total_seconds()
        return self.estimate_duration(task.tool.name).remaining_after(passed)

    def poll_interval(self, task: Task) -> float:
        """Return the seconds after which to poll a task again."""
        if task.is_terminal:
            return MIN_INTERVAL
        now = self._clock.now()
        if task.status is Status.INPUT_REQUIRED:
            waited = max((now - task.updated_at).total_seconds(), 0.0)
            return min(max(waited / INTERVAL_DIVISOR, MIN_INTERVAL), MAX_INPUT_INTERVAL)
        passed = max((now - task.created_at).total_seconds(), 0.0)
        estimated = self.estimate_duration(task.tool.name).remaining_after(passed)
        until_due = 0.0 if task.due_at is None else (task.due_at - now).total_seconds()
        left = max(until_due, estimated or 0.0)
        return min(max(left / INTERVAL_DIVISOR, passed / (2 * INTERVAL_DIVISOR), MIN_INTERVAL), MAX_INTERVAL)

    def poll_interval_ms(self, task: Task) -> int:
        return round(self.poll_interval(task) * 1_000)

    def track_poll(self, owner: Owner, task_id: str) -> "PollsInFlight":
        """Return a context that counts a poll as in flight.

        Raises:
            MCPError: the poll comes much too fast, and the server is busy.
        """
        # Also by owner: polls of another caller who knows the id must not slow down the polls of this one.
        poll = f"{owner.key} {task_id}"
        now, last = self._clock.monotonic(), self._polled.get(poll)
        is_too_fast = last is not None and now - last < MIN_INTERVAL / MAX_RATE_FACTOR
        if is_too_fast and self._in_flight.count >= BUSY_POLL_COUNT:
            raise over_limit(
                "the server is busy, and this task is polled much faster than its poll interval: poll less often",
                "polls",
                None,
                MIN_INTERVAL,
            )
        self._polled[poll] = now
        self._polled.move_to_end(poll)
        if len(self._polled) > MAX_TRACKED_POLLS:
            self._polled.popitem(last=False)
        return self._in_flight


class PollsInFlight:
    """Counts the polls in flight. All polls share one object, because a generator for each would cost more."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(self, _: object, __: object, ___: object) -> None:
        self.count -= 1


MIN_SAMPLES = 10
"""Measured calls that are needed before they outweigh the duration that the author expects."""

MARGIN = 2.0
"""Factor by which a call may exceed the duration that its author expects."""

SLACK = 0.25
"""Seconds added to a wait, in which the end of a call is propagated."""

TASK_COST = 2.0
"""Seconds: the cost for a caller to get a task instead of a result."""

MAX_CHOSEN_WAIT = 10.0
"""Seconds. A call that takes longer is worth a task, however certain it is to end."""

SHORT_WAIT = 5.0
"""Seconds, for a caller without tasks whose call will not end in time: most failures occur within them."""

MIN_SUCCESS_SHARE = 0.1
"""The share of calls that end in time, below which a wait is useless."""

NOT_WORTH_IT = "it is not worth waiting"


@dataclass(frozen=True, slots=True)
class DurationEstimate:
    """Estimate of how long the calls of a tool take."""

    histogram: DurationHistogram
    source: str
    """Description of where the estimate is from."""
    expected: float | None = None
    """Seconds, if the estimate is only the duration that the author expects."""

    @classmethod
    def from_measurements(cls, measured: DurationHistogram, expected: float | None) -> Self:
        """Return the measured durations or, until there are enough, the duration that the author expects."""
        if measured.total >= MIN_SAMPLES:
            return cls(measured, f"of the latest {measured.total} calls")
        if expected is not None:
            return cls(
                DurationHistogram().with_duration(expected), f"its author expects {format_duration(expected)}", expected
            )
        return cls(
            DurationHistogram(), f"{measured.total} of {MIN_SAMPLES} calls are measured, and no expected= was declared"
        )

    def remaining_after(self, passed: float) -> float | None:
        """Return the seconds that a call probably has left after `passed` seconds; None if that is unknown."""
        median = self.histogram.quantile(0.5, min_seconds=passed)
        return None if median is None else max(median - passed, 0.0)


@dataclass(frozen=True, slots=True)
class WaitDecision:
    """The seconds that a call waits for its end, and the reason."""

    seconds: float
    reason: str


def choose_inline_wait(policy: TaskPolicy, estimate: DurationEstimate) -> WaitDecision:
    """Choose the wait for a caller that accepts tasks, and gets one after the wait."""
    if policy.inline_for is not None:
        return WaitDecision(policy.inline_for, "set by its author")
    if policy.mode == "required":
        return WaitDecision(0.0, 'it always runs as a task (mode="required")')
    if not estimate.histogram.total:
        return WaitDecision(0.0, estimate.source)
    if estimate.expected is not None:
        wait = estimate.expected * MARGIN + SLACK
        return (
            WaitDecision(wait, estimate.source)
            if wait <= MAX_CHOSEN_WAIT
            else WaitDecision(0.0, f"{estimate.source}: {NOT_WORTH_IT}")
        )
    return _cheapest(estimate)


def _cheapest(estimate: DurationEstimate) -> WaitDecision:
    """Return the wait that costs callers least on average, beyond the work itself."""
    total, passed = estimate.histogram.total, 0
    best, least, share = 0.0, TASK_COST, 0.0
    for edge, count in zip(estimate.histogram.edges, estimate.histogram.counts.values(), strict=True):
        wait = edge + SLACK
        if wait > MAX_CHOSEN_WAIT:
            break
        passed += count
        cost = (1.0 - passed / total) * (TASK_COST + wait)
        if cost < least:
            best, least, share = wait, cost, passed / total
    if not best:
        return WaitDecision(
            0.0,
            f"{estimate.source}, {passed / total:.0%} end within {format_duration(MAX_CHOSEN_WAIT)}: {NOT_WORTH_IT}",
        )
    return WaitDecision(best, f"{estimate.source}, {share:.0%} end within {format_duration(best)}")


def choose_fallback_wait(policy: TaskPolicy, estimate: DurationEstimate, fallback_wait: float) -> WaitDecision:
    """Choose the wait for a caller without tasks, which then receives text on how to continue."""
    share = estimate.histogram.fraction_within(fallback_wait)
    if not estimate.histogram.total or share >= MIN_SUCCESS_SHARE:
        return WaitDecision(fallback_wait, "such callers wait for fallback_wait seconds")
    soon = min(max(SHORT_WAIT, policy.inline_for or 0.0), fallback_wait)
    if estimate.expected is not None:
        return WaitDecision(soon, f"{estimate.source}: waiting longer is of no use")
    return WaitDecision(
        soon, f"{estimate.source}, {share:.0%} end within {format_duration(fallback_wait)}: waiting longer is of no use"
    )
