"""How long to wait before asking for a task again: as long as it will probably take, and not much longer.

A caller polls at the pace that it is told. Told too little, many of them keep the server busy with answers that say
nothing; told too much, a result lies around. So the pace follows what is left of the task, guessed from how long tasks
of the same tool take, and where there is no guess, from how long it has been going on.
"""

from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime

from raincheck.clock import Clock
from raincheck.core.lifecycle import Status
from raincheck.core.owner import Owner
from raincheck.core.records import Task
from raincheck.server.refusals import over_limit

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
