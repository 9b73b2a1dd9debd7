"""How long the tasks of one tool take: a small sketch that is merged, and in which what is older fades.

Durations are counted in buckets, four for each doubling from a millisecond to 30 days. So what a sketch says of a
duration is at most a fifth (2 ** 0.25) too long, whatever its size, and a sketch is at most `LAST + 1` small numbers.

It holds `MOST` durations. When there are more, all counts are halved and rounded down: a tool that has become quicker
or slower is known as such after a few hundred tasks, and the one that took a day because a disk was full is forgotten.
"""

import json
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Self

from raincheck.errors import InvalidValue

MOST = 512
"""How many durations a sketch counts before it halves."""

MOST_TOOLS = 1_000
"""Of how many tools a namespace keeps sketches."""

_SHORTEST = 0.001
_LONGEST = timedelta(days=30).total_seconds()
_PER_DOUBLING = 4

LAST = math.ceil(_PER_DOUBLING * math.log2(_LONGEST / _SHORTEST))
"""The last bucket. It has all that took longer, too."""

EDGES = (*(_SHORTEST * 2 ** (bucket / _PER_DOUBLING) for bucket in range(LAST)), _LONGEST)
"""The upper edges of the buckets, in seconds. A bucket has its upper edge, and the next one what is beyond."""


@dataclass(frozen=True, slots=True)
class Sketch:
    """How many tasks took about how long.

    `with_one` and `merged` add to it. `share_within`, `quantile` and `longer_than` tell what is known. `dump` makes
    text of it, and `load` reads it again.
    """

    counts: Mapping[int, int] = field(default_factory=dict[int, int])
    """How many in each bucket. Buckets without any are left out."""

    def __post_init__(self) -> None:
        counts = dict(self.counts)
        for bucket, count in counts.items():
            if not (_is_whole(bucket) and 0 <= bucket <= LAST and _is_whole(count) and count > 0):
                raise InvalidValue(
                    f"a sketch counts at least one in a bucket from 0 to {LAST}, not {count!r} in {bucket!r}"
                )
        if sum(counts.values()) > MOST:
            raise InvalidValue(f"a sketch counts at most {MOST} durations, not {sum(counts.values())}: merge sketches")
        object.__setattr__(self, "counts", MappingProxyType(dict(sorted(counts.items()))))

    @classmethod
    def load(cls, text: str) -> Self:
        """The sketch that `dump` made this text of.

        Raises:
            InvalidValue: it did not.
        """
        try:
            pairs: Any = json.loads(text)
            sketch = cls(dict(pairs))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidValue(f"{text[:80]!r} is no sketch of durations: {error}") from error
        # In another order, or with a bucket named twice, it is not what was written either.
        if pairs != sketch._pairs():
            raise InvalidValue(f"{text[:80]!r} is no sketch of durations: its buckets are not in order")
        return sketch

    def dump(self) -> str:
        """The sketch as JSON: pairs of a bucket and its count."""
        return json.dumps(self._pairs(), separators=(",", ":"))

    @property
    def total(self) -> int:
        """How many are counted. It falls now and then."""
        return sum(self.counts.values())

    def with_one(self, seconds: float) -> Self:
        """With one task more, which took so long.

        Raises:
            InvalidValue: that is not a finite number.
        """
        return self.with_all([seconds])

    def with_all(self, seconds: Iterable[float]) -> Self:
        """With so many more.

        Raises:
            InvalidValue: one is not a finite number.
        """
        return self._and(Counter(map(_bucket_of, seconds)))

    def merged(self, other: "Sketch") -> Self:
        """With what another sketch counts."""
        return self._and(other.counts)

    def share_within(self, seconds: float) -> float:
        """Which part of the tasks, from 0 to 1, took no longer than that; 0 if none are counted.

        Raises:
            InvalidValue: that is not a finite number.
        """
        longer = self.longer_than(seconds).total
        return (self.total - longer) / self.total if self.counts else 0.0

    def quantile(self, share: float, *, as_long_as: float = 0.0) -> float | None:
        """The seconds within which this part of the tasks, from 0 to 1, was done; None if none are counted.

        With `as_long_as`, only of those that took about so many seconds, or longer: whose bucket is the one of so many,
        or lies beyond.

        Raises:
            InvalidValue: it is no such part, or that is not a finite number.
        """
        if not 0 <= share <= 1:
            raise InvalidValue(f"a share of tasks is from 0 to 1, not {share}")
        # In place, and no sketch of its own: it is asked at every poll.
        first, passed = _bucket_of(as_long_as), 0
        wanted = share * sum(count for bucket, count in self.counts.items() if bucket >= first)
        for bucket, count in self.counts.items():
            if bucket < first:
                continue
            passed += count
            if passed >= wanted:
                return EDGES[bucket]
        return None

    @property
    def edges(self) -> tuple[float, ...]:
        """Seconds: the upper edges of the buckets that have any, the shortest first."""
        return tuple(EDGES[bucket] for bucket in self.counts)

    def longer_than(self, seconds: float) -> Self:
        """Those that took longer: whose bucket lies beyond the one of so many seconds.

        Raises:
            InvalidValue: that is not a finite number.
        """
        last = _bucket_of(seconds)
        return type(self)({bucket: count for bucket, count in self.counts.items() if bucket > last})

    def _and(self, more: Mapping[int, int]) -> Self:
        counts = {bucket: self.counts.get(bucket, 0) + more.get(bucket, 0) for bucket in self.counts.keys() | more}
        # There are many more than there are buckets, so one of these has several, and something is left.
        while sum(counts.values()) > MOST:
            counts = {bucket: count // 2 for bucket, count in counts.items() if count > 1}
        return type(self)(counts)

    def _pairs(self) -> list[list[int]]:
        return [[bucket, count] for bucket, count in self.counts.items()]


def merge_news(known: Mapping[str, Sketch], news: Mapping[str, Sketch]) -> dict[str, Sketch]:
    """The sketches of the tools that are new, or have changed, when a namespace that knows these hears the news.

    When `MOST_TOOLS` are known, further ones are left out: whoever makes up names must not fill a store.
    """
    changed: dict[str, Sketch] = {}
    room = MOST_TOOLS - len(known)
    for tool, sketch in news.items():
        is_known = tool in known
        if not sketch.counts or not (is_known or room > 0):
            continue
        changed[tool] = known[tool].merged(sketch) if is_known else sketch
        room -= not is_known
    return changed


def _bucket_of(seconds: float) -> int:
    try:
        seconds = float(seconds)
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds):
        raise InvalidValue(f"a duration is a finite number of seconds, not {seconds}")
    return min(bisect_left(EDGES, seconds), LAST)


def _is_whole(number: object) -> bool:
    return type(number) is int
