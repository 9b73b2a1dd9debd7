"""Limit what the callers of a process use at once, so that all get a share: streams, followed tasks and new tasks.

Unverified callers share one limit, because any of them can appear as any number of owners.
"""

from collections import Counter, deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv6Address, ip_address

from raincheck.clock import Clock
from raincheck.core.owner import Owner, OwnerKind
from raincheck.core.policies import Quota
from raincheck.errors import QuotaExceeded
from raincheck.server.errors import over_limit

UNVERIFIED_KINDS = frozenset({OwnerKind.HEADER, OwnerKind.SESSION, OwnerKind.ANONYMOUS})


@dataclass(frozen=True, slots=True)
class StreamLimit:
    """Maximum number of streams, and of tasks that they follow."""

    streams: int
    tasks: int


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Limits in total, for unverified callers and per owner."""

    total: StreamLimit
    for_unverified: StreamLimit
    """For all unverified callers together: any of them can appear as any number of owners."""
    per_owner: StreamLimit


STREAM_LIMITS = StreamLimits(StreamLimit(1_000, 10_000), StreamLimit(500, 5_000), StreamLimit(100, 1_000))
"""Limits for streams that push changes of tasks."""

RESULT_LIMITS = StreamLimits(StreamLimit(10_000, 10_000), StreamLimit(5_000, 5_000), StreamLimit(2_000, 2_000))
"""Limits for requests that wait for the result of one task. They cost next to nothing."""


@dataclass(slots=True)
class StreamLease:
    """The slots that one stream holds."""

    slots: "StreamSlots"
    holder: str
    tasks: int

    def shrink(self, tasks: int) -> None:
        """Reduce the tasks of the stream to fewer than it asked for."""
        self.slots.tasks -= Counter({self.holder: self.tasks - tasks})
        self.tasks = tasks


class StreamSlots:
    """The slots for streams in one process. A stream acquires its slots before its tasks are looked up."""

    def __init__(self, limits: StreamLimits) -> None:
        self._limits = limits
        self.streams: Counter[str] = Counter()
        self.tasks: Counter[str] = Counter()
        """By holder."""

    @contextmanager
    def acquire(self, owner: Owner, tasks: int) -> Generator[StreamLease]:
        """Hold slots for a stream.

        Raises:
            MCPError: no slot is free.
        """
        is_unverified = owner.kind in UNVERIFIED_KINDS
        limits = self._limits
        holder, share = ("", limits.for_unverified) if is_unverified else (owner.key, limits.per_owner)
        for name, used, wanted, holder_max, total_max in (
            ("streams", self.streams, 1, share.streams, limits.total.streams),
            ("followed tasks", self.tasks, tasks, share.tasks, limits.total.tasks),
        ):
            is_holder_full, is_full = used[holder] + wanted > holder_max, used.total() + wanted > total_max
            if is_holder_full or is_full:
                max_count = holder_max if is_holder_full else total_max
                raise over_limit(f"too many {name} at once: try again later, or poll", name, max_count, None)
        self.streams[holder] += 1
        self.tasks[holder] += tasks
        lease = StreamLease(self, holder, tasks)
        try:
            yield lease
        finally:
            self.streams -= Counter({holder: 1})
            self.tasks -= Counter({holder: lease.tasks})


class AnonymousRateLimit:
    """Limits the new tasks of unverified callers in this process, as if they were all one owner, and shares them out.

    A network address may use half of what the others leave, which is as many tasks as it leaves free. So one address
    can't use up the limit, and an address that comes later gets a share, too. Switches share memory among their ports
    by this rule (a dynamic threshold).
    """

    def __init__(self, clock: Clock, quota: Quota) -> None:
        self._clock = clock
        self._quota = quota
        self.created: deque[tuple[float, str]] = deque()
        """The times and addresses of the tasks created within the window: no more of them than the limit."""
        self.used: Counter[str] = Counter()
        """The number of these tasks by address."""

    def admit(self, owner: Owner, host: str | None) -> None:
        """Admit one more task of a caller at this host, if the limit and its share allow it.

        Raises:
            QuotaExceeded: the limit for unverified callers, or the share of the address, is reached.
        """
        limit = self._quota.created
        if owner.kind not in UNVERIFIED_KINDS or limit is None:
            return
        now, window = self._clock.monotonic(), self._quota.window.total_seconds()
        self._forget_until(now - window)
        address = network_address(host)
        used, free = self.used[address], limit - len(self.created)
        if used >= free:
            # Each task that leaves the window frees one: when this one has, more are free than the address uses.
            last, _ = self.created[min(used - free, len(self.created) - 1)]
            raise QuotaExceeded(
                "new tasks of unverified callers",
                limit,
                timedelta(seconds=last + window - now),
                scope="in all, and for one network address half of what the others leave",
                alternative="authenticate",
            )
        self.created.append((now, address))
        self.used[address] += 1

    def _forget_until(self, time: float) -> None:
        while self.created and self.created[0][0] <= time:
            _, address = self.created.popleft()
            self.used[address] -= 1
            if not self.used[address]:
                del self.used[address]


def network_address(host: str | None) -> str:
    """Return what shares one limit: an IPv4 address, or an IPv6 network of 64 bits; "" for all unknown addresses."""
    try:
        address = ip_address(host or "")
    except ValueError:
        # A Unix socket, or a transport without a network.
        return ""
    if address.version == 6:
        return str(address.ipv4_mapped or IPv6Address(int(address) >> 64 << 64))
    return str(address)
