"""Whether a call is worth a task, and how long to wait for its end first. Decided from how long such calls take.

To answer a call with its result is best for everybody, if it comes soon. To wait for one that does not come soon is a
waste: its caller could have had its task, and gone on. So the wait is as long as costs least, over the calls that were
measured: a call that does not end within it has waited for nothing, and is a task besides, which costs its caller a
poll or two.

How long to wait before asking for a task again: as long as it will probably take, and not much longer.

A caller polls at the pace that it is told. Told too little, many of them keep the server busy with answers that say
nothing; told too much, a result lies around. So the pace follows what is left of the task, guessed from how long tasks
of the same tool take, and where there is no guess, from how long it has been going on.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from raincheck.clock import Clock
from raincheck.core.histogram import Sketch
from raincheck.core.lifecycle import Status
from raincheck.core.owner import Owner
from raincheck.core.records import Task
from raincheck.server.errors import over_limit
from raincheck.server.tools.policy import TaskPolicy
from raincheck.wire.fallback_text import in_words

SHORTEST = 0.5
LONGEST = 60.0
LONGEST_FOR_ANSWERS = 10.0
"""Seconds between polls of a task that waits for its caller: an answer is given at any time, and then it goes on."""

PARTS = 8
"""A poll comes after this part of what is left, or of what has passed if nothing is known."""

MOST_POLLERS = 1_000
"""Polls that are remembered: many more than a server answers in the time within which the next comes too fast."""

BUSY = 64
"""Polls under way at once, from which on those that come much too fast are sent away."""

MUCH_TOO_FAST = 10
"""How many times as fast as it was told."""


class Pace:
    """The pace of polling, for one server."""

    def __init__(self, clock: Clock, left_after: Callable[[str, float], float | None]) -> None:
        self._clock = clock
        self._left_after = left_after
        """Seconds that a task of a tool probably has left after so many; None if nobody knows."""
        self._polled: OrderedDict[str, float] = OrderedDict()
        self._poll = Poll()

    def interval(self, task: Task) -> float:
        """Seconds after which to ask for a task again."""
        if task.is_terminal:
            return SHORTEST
        now = self._clock.now()
        if task.status is Status.INPUT_REQUIRED:
            asked = max((now - task.updated_at).total_seconds(), 0.0)
            return min(max(asked / PARTS, SHORTEST), LONGEST_FOR_ANSWERS)
        passed = max((now - task.created_at).total_seconds(), 0.0)
        left = max(_until(task.due_at, now), self._left_after(task.tool.name, passed) or 0.0)
        return min(max(left / PARTS, passed / (2 * PARTS), SHORTEST), LONGEST)

    def interval_ms(self, task: Task) -> int:
        return round(self.interval(task) * 1_000)

    def polling(self, owner: Owner, task_id: str) -> "Poll":
        """A poll of a task is under way, within the context.

        Raises:
            MCPError: it comes much too fast, and others wait because of such.
        """
        # By owner too: nobody's polls are slowed by those of somebody else who knows the id.
        poll = f"{owner.key} {task_id}"
        now, last = self._clock.elapsed(), self._polled.get(poll)
        if self._poll.under_way >= BUSY and last is not None and now - last < SHORTEST / MUCH_TOO_FAST:
            raise over_limit(
                "this task is asked for much faster than it said it should be, and the server is busy: ask less often",
                "polls",
                None,
                SHORTEST,
            )
        self._polled[poll] = now
        self._polled.move_to_end(poll)
        if len(self._polled) > MOST_POLLERS:
            self._polled.popitem(last=False)
        return self._poll


class Poll:
    """Counts the polls that are under way. There is one for all, and no generator for each: those cost."""

    def __init__(self) -> None:
        self.under_way = 0

    def __enter__(self) -> None:
        self.under_way += 1

    def __exit__(self, _: object, __: object, ___: object) -> None:
        self.under_way -= 1


def _until(moment: datetime | None, now: datetime) -> float:
    return 0.0 if moment is None else (moment - now).total_seconds()


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
