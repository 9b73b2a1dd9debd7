"""Duration histograms of tools: small, mergeable, with older durations fading out.

Durations are counted in buckets, four for each doubling from a millisecond to 30 days. So a reported duration is at
most a fifth (2 ** 0.25) too long, whatever its size, and a histogram is at most `LAST_BUCKET + 1` small numbers.

It holds `MAX_DURATIONS` durations. Beyond that, all counts are halved and rounded down: a tool that has become faster
or slower is recognized after a few hundred tasks, and the one task that took a day because a disk was full is
forgotten.
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

MAX_DURATIONS = 512
"""The number of durations a histogram counts before it halves its counts."""

MAX_TOOLS = 1_000
"""The maximum number of tools with histograms in a namespace."""

_SHORTEST = 0.001
_LONGEST = timedelta(days=30).total_seconds()
_PER_DOUBLING = 4

LAST_BUCKET = math.ceil(_PER_DOUBLING * math.log2(_LONGEST / _SHORTEST))
"""The last bucket. It also counts all longer durations."""

BUCKET_EDGES = (*(_SHORTEST * 2 ** (bucket / _PER_DOUBLING) for bucket in range(LAST_BUCKET)), _LONGEST)
"""The upper edges of the buckets, in seconds. A bucket includes its upper edge; the next one starts beyond it."""


@dataclass(frozen=True, slots=True)
class DurationHistogram:
    """The number of tasks per duration bucket.

    `with_duration`, `with_durations` and `merged` add durations. `fraction_within`, `quantile` and `longer_than` query
    them. `dump` serializes to text, and `load` parses it.
    """

    counts: Mapping[int, int] = field(default_factory=dict[int, int])
    """The count of each bucket. Empty buckets are left out."""

    def __post_init__(self) -> None:
        counts = dict(self.counts)
        for bucket, count in counts.items():
            if not (_is_whole(bucket) and 0 <= bucket <= LAST_BUCKET and _is_whole(count) and count > 0):
                raise InvalidValue(
                    f"a histogram counts at least 1 in a bucket from 0 to {LAST_BUCKET}, not {count!r} in {bucket!r}"
                )
        if sum(counts.values()) > MAX_DURATIONS:
            raise InvalidValue(
                f"a histogram counts at most {MAX_DURATIONS} durations, not {sum(counts.values())}: use merged"
            )
        object.__setattr__(self, "counts", MappingProxyType(dict(sorted(counts.items()))))

    @classmethod
    def load(cls, text: str) -> Self:
        """Parse the output of `dump`.

        Raises:
            InvalidValue: the text is not such output.
        """
        try:
            pairs: Any = json.loads(text)
            histogram = cls(dict(pairs))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidValue(f"{text[:80]!r} is not a duration histogram: {error}") from error
        # Another order, or a bucket named twice, was not written by `dump` either.
        if pairs != histogram._pairs():
            raise InvalidValue(f"{text[:80]!r} is not a duration histogram: its buckets are not in order")
        return histogram

    def dump(self) -> str:
        """Serialize to JSON: pairs of a bucket and its count."""
        return json.dumps(self._pairs(), separators=(",", ":"))

    @property
    def total(self) -> int:
        """The number of counted durations. It drops when the counts are halved."""
        return sum(self.counts.values())

    def with_duration(self, seconds: float) -> Self:
        """Return the histogram with one more duration.

        Raises:
            InvalidValue: it is not a finite number.
        """
        return self.with_durations([seconds])

    def with_durations(self, seconds: Iterable[float]) -> Self:
        """Return the histogram with several more durations.

        Raises:
            InvalidValue: one is not a finite number.
        """
        return self._add(Counter(map(_bucket_of, seconds)))

    def merged(self, other: "DurationHistogram") -> Self:
        """Return the histogram with the counts of another added."""
        return self._add(other.counts)

    def fraction_within(self, seconds: float) -> float:
        """Return the fraction of the tasks, from 0 to 1, that took at most `seconds`; 0 if none are counted.

        Raises:
            InvalidValue: it is not a finite number.
        """
        longer = self.longer_than(seconds).total
        return (self.total - longer) / self.total if self.counts else 0.0

    def quantile(self, fraction: float, *, min_seconds: float = 0.0) -> float | None:
        """Return the seconds within which this fraction of the tasks, from 0 to 1, ended; None if none are counted.

        With `min_seconds`, count only the tasks that took about that long or longer: their bucket is that of
        `min_seconds` or a later one.

        Raises:
            InvalidValue: the fraction is out of range, or the seconds are not a finite number.
        """
        if not 0 <= fraction <= 1:
            raise InvalidValue(f"a fraction of tasks must be from 0 to 1, not {fraction}")
        # Computed in place, without a second histogram: this is called at every poll.
        first, counted = _bucket_of(min_seconds), 0
        wanted = fraction * sum(count for bucket, count in self.counts.items() if bucket >= first)
        for bucket, count in self.counts.items():
            if bucket < first:
                continue
            counted += count
            if counted >= wanted:
                return BUCKET_EDGES[bucket]
        return None

    @property
    def edges(self) -> tuple[float, ...]:
        """The upper edges of the non-empty buckets in seconds, shortest first."""
        return tuple(BUCKET_EDGES[bucket] for bucket in self.counts)

    def longer_than(self, seconds: float) -> Self:
        """Return the histogram of longer durations: those in buckets after that of `seconds`.

        Raises:
            InvalidValue: it is not a finite number.
        """
        last = _bucket_of(seconds)
        return type(self)({bucket: count for bucket, count in self.counts.items() if bucket > last})

    def _add(self, more: Mapping[int, int]) -> Self:
        counts = {bucket: self.counts.get(bucket, 0) + more.get(bucket, 0) for bucket in self.counts.keys() | more}
        # There are many more durations than buckets, so some bucket has several, and the result is not empty.
        while sum(counts.values()) > MAX_DURATIONS:
            counts = {bucket: count // 2 for bucket, count in counts.items() if count > 1}
        return type(self)(counts)

    def _pairs(self) -> list[list[int]]:
        return [[bucket, count] for bucket, count in self.counts.items()]


def merge_histograms(
    stored: Mapping[str, DurationHistogram], new: Mapping[str, DurationHistogram]
) -> dict[str, DurationHistogram]:
    """Return the histograms that are new or changed when `new` is merged into the `stored` ones of a namespace.

    When `MAX_TOOLS` are stored, further ones are left out: a caller that invents names must not fill a store.
    """
    changed: dict[str, DurationHistogram] = {}
    free = MAX_TOOLS - len(stored)
    for tool, histogram in new.items():
        is_stored = tool in stored
        if not histogram.counts or not (is_stored or free > 0):
            continue
        changed[tool] = stored[tool].merged(histogram) if is_stored else histogram
        free -= not is_stored
    return changed


def _bucket_of(seconds: float) -> int:
    try:
        seconds = float(seconds)
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds):
        raise InvalidValue(f"a duration is a finite number of seconds, not {seconds}")
    return min(bisect_left(BUCKET_EDGES, seconds), LAST_BUCKET)


def _is_whole(number: object) -> bool:
    return type(number) is int
