"""What callers whom nobody vouches for may make together: any of them can be as many owners as they like."""

from collections import deque
from datetime import timedelta

from raincheck.clock import Clock
from raincheck.core.limits import Quota
from raincheck.core.owner import Owner, OwnerKind
from raincheck.errors import QuotaExceeded

UNVERIFIED = frozenset({OwnerKind.HEADER, OwnerKind.SESSION, OwnerKind.ANONYMOUS})


class Strangers:
    """Counts their new tasks in this process, as if they were all one owner."""

    def __init__(self, clock: Clock, quota: Quota) -> None:
        self._clock = clock
        self._quota = quota
        self._made: deque[float] = deque()

    def admit(self, owner: Owner) -> None:
        """Let one more task be made, if there is room.

        Raises:
            QuotaExceeded: there is none for strangers.
        """
        if owner.kind not in UNVERIFIED or self._quota.created is None:
            return
        now, window = self._clock.elapsed(), self._quota.window.total_seconds()
        while self._made and self._made[0] <= now - window:
            self._made.popleft()
        if len(self._made) >= self._quota.created:
            after = timedelta(seconds=self._made[0] + window - now)
            raise QuotaExceeded("new tasks of unknown callers, who count as one owner", self._quota.created, after)
        self._made.append(now)
