"""Duration histograms are small, accurate, mergeable in any order, and fade out old durations."""

import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raincheck.core.histogram import (
    BUCKET_EDGES,
    LAST_BUCKET,
    MAX_DURATIONS,
    MAX_TOOLS,
    DurationHistogram,
    merge_histograms,
)
from raincheck.errors import InvalidValue

MONTH = 30 * 24 * 3_600.0
SECONDS = st.floats(0, MONTH)
ANY_SECONDS = st.floats(-1e9, 1e12) | st.integers(-(10**30), 10**30)
SHARES = st.floats(0, 1)


def histogram_of(durations: list[float]) -> DurationHistogram:
    histogram = DurationHistogram()
    for seconds in durations:
        histogram = histogram.with_duration(seconds)
    return histogram


SKETCHES = st.lists(ANY_SECONDS, max_size=30).map(histogram_of)
FULL = st.dictionaries(st.integers(0, LAST_BUCKET), st.integers(1, MAX_DURATIONS), max_size=40)


def full_histogram(counts: dict[int, int]) -> DurationHistogram:
    """Return a histogram with as many of these counts as fit."""
    histogram = DurationHistogram()
    for bucket, count in counts.items():
        histogram = histogram.merged(DurationHistogram({bucket: count}))
    return histogram


def test_the_buckets_reach_from_a_millisecond_to_a_month_with_four_for_each_doubling() -> None:
    assert (BUCKET_EDGES[0], BUCKET_EDGES[-1], len(BUCKET_EDGES)) == (0.001, MONTH, LAST_BUCKET + 1)
    assert all(BUCKET_EDGES[bucket + 4] == pytest.approx(2 * BUCKET_EDGES[bucket]) for bucket in range(LAST_BUCKET - 4))
    assert BUCKET_EDGES[-2] < BUCKET_EDGES[-1] < 2**0.25 * BUCKET_EDGES[-2]


def test_an_empty_histogram_has_no_quantile() -> None:
    empty = DurationHistogram()
    assert (empty.total, empty.fraction_within(1), empty.quantile(0.5), empty.dump()) == (0, 0.0, None, "[]")
    assert empty.longer_than(0) == empty.merged(empty) == DurationHistogram.load("[]") == empty


def test_quantiles_reproduce_the_counted_durations() -> None:
    histogram = histogram_of([0.1, 0.1, 1, 1, 1, 60, 60, 60, 60, 3_600])
    assert histogram.total == 10
    assert [histogram.fraction_within(at) for at in (0.01, 0.1, 1, 30, 60, 3_600)] == [0, 0.2, 0.5, 0.5, 0.9, 1]
    found = [histogram.quantile(share) for share in (0, 0.2, 0.5, 0.9, 1)]
    assert found == [pytest.approx(seconds, rel=0.19) for seconds in (0.1, 0.1, 1, 60, 3_600)]
    assert histogram.longer_than(1) == histogram_of([60, 60, 60, 60, 3_600])


@given(SECONDS)
@example(0.001)
@example(MONTH)
def test_a_reported_duration_is_at_most_a_fifth_too_long_and_never_too_short(seconds: float) -> None:
    reported = DurationHistogram().with_duration(seconds).quantile(0.5)
    assert reported is not None
    assert seconds <= reported <= max(0.001, 1.19 * seconds)


@pytest.mark.parametrize("bucket", [0, 1, 2, 3, LAST_BUCKET - 1, LAST_BUCKET])
def test_a_bucket_includes_its_upper_edge(bucket: int) -> None:
    assert DurationHistogram().with_duration(BUCKET_EDGES[bucket]) == DurationHistogram({bucket: 1})
    beyond = DurationHistogram().with_duration(math.nextafter(BUCKET_EDGES[bucket], math.inf))
    assert beyond == DurationHistogram({min(bucket + 1, LAST_BUCKET): 1})


@pytest.mark.parametrize(
    ("seconds", "bucket"), [(-1, 0), (-0.0, 0), (0, 0), (1e-9, 0), (1e9, LAST_BUCKET), (10**300, LAST_BUCKET)]
)
def test_durations_out_of_range_are_counted_in_the_outer_buckets(seconds: float, bucket: int) -> None:
    assert DurationHistogram().with_duration(seconds) == DurationHistogram({bucket: 1})


NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "huge": 10**400, "too large for a float": 10**5_000}


@pytest.mark.parametrize("seconds", NOT_FINITE.values(), ids=NOT_FINITE)
def test_a_duration_that_is_not_finite_is_refused(seconds: float) -> None:
    for ask in (
        DurationHistogram().with_duration,
        DurationHistogram().fraction_within,
        DurationHistogram({1: 1}).longer_than,
        DurationHistogram({1: 1}).fraction_within,
    ):
        with pytest.raises(InvalidValue, match="a finite number of seconds, not"):
            ask(seconds)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan, math.inf])
def test_a_fraction_must_be_from_0_to_1(share: float) -> None:
    with pytest.raises(InvalidValue, match="from 0 to 1"):
        DurationHistogram({1: 1}).quantile(share)


@given(SKETCHES, SKETCHES, SKETCHES)
def test_histograms_merge_in_any_order(
    one: DurationHistogram, two: DurationHistogram, three: DurationHistogram
) -> None:
    assert one.merged(two) == two.merged(one)
    assert one.merged(two).merged(three) == one.merged(two.merged(three))
    assert one.merged(two).total == one.total + two.total
    assert one.merged(DurationHistogram()) == one


@given(FULL, FULL)
def test_full_histograms_merge_in_either_order_within_the_limit(one: dict[int, int], two: dict[int, int]) -> None:
    merged = full_histogram(one).merged(full_histogram(two))
    assert merged == full_histogram(two).merged(full_histogram(one))
    assert merged.total <= MAX_DURATIONS
    assert (merged.total > 0) == bool(one or two)


@given(SKETCHES, ANY_SECONDS, ANY_SECONDS, SHARES, SHARES)
def test_fractions_and_quantiles_are_monotonic(
    histogram: DurationHistogram, one: float, two: float, share: float, other: float
) -> None:
    shorter, longer = sorted([one, two])
    assert 0 <= histogram.fraction_within(shorter) <= histogram.fraction_within(longer) <= 1
    low, high = (histogram.quantile(part) for part in sorted([share, other]))
    assert low is None if high is None else (low is not None and low <= high)


@given(SKETCHES, ANY_SECONDS, SHARES)
def test_fractions_quantiles_and_longer_than_agree(histogram: DurationHistogram, seconds: float, share: float) -> None:
    longer = histogram.longer_than(seconds)
    assert histogram.total - longer.total == pytest.approx(histogram.fraction_within(seconds) * histogram.total)
    assert longer.counts.items() <= histogram.counts.items()
    left = longer.quantile(0)
    assert left is None or left > seconds
    within = histogram.quantile(share)
    assert within is None or histogram.fraction_within(within) >= share


def test_beyond_the_limit_all_counts_are_halved_and_single_ones_vanish() -> None:
    histogram = DurationHistogram({10: 500, 20: 11, 90: 1})
    assert histogram.total == MAX_DURATIONS
    assert histogram.with_duration(BUCKET_EDGES[20]) == DurationHistogram({10: 250, 20: 6})
    assert histogram.with_duration(BUCKET_EDGES[50]) == DurationHistogram({10: 250, 20: 5})
    assert histogram.merged(histogram) == DurationHistogram({10: 500, 20: 11, 90: 1})
    assert DurationHistogram({5: 256}).merged(DurationHistogram({5: 256})) == DurationHistogram({5: 512})


def test_the_flattest_possible_histogram_does_not_vanish() -> None:
    flat = DurationHistogram(dict.fromkeys(range(LAST_BUCKET + 1), MAX_DURATIONS // (LAST_BUCKET + 1)))
    while flat.total < MAX_DURATIONS:
        flat = flat.with_duration(BUCKET_EDGES[flat.total % 8])
    assert 0 < flat.with_duration(BUCKET_EDGES[0]).total < MAX_DURATIONS


def test_a_tool_that_became_slower_is_soon_recognized() -> None:
    histogram = DurationHistogram({10: MAX_DURATIONS})
    for _ in range(MAX_DURATIONS):
        histogram = histogram.with_duration(60)
    assert histogram.quantile(0.5) == pytest.approx(60, rel=0.19)


@given(SKETCHES | FULL.map(full_histogram))
def test_a_histogram_round_trips_through_its_text(histogram: DurationHistogram) -> None:
    assert DurationHistogram.load(histogram.dump()) == histogram
    assert len(histogram.dump()) < 2_000


def test_a_text_is_short_json() -> None:
    assert DurationHistogram({20: 3, 4: 1}).dump() == "[[4,1],[20,3]]"
    assert DurationHistogram.load(" [[4, 1],\n [20, 3]] ") == DurationHistogram({4: 1, 20: 3})


ILL_FORMED = [
    *("", "x", "null", "1", '"12"', "{}", '{"4":1}', "[4,1]", "[[4]]", "[[4,1,1]]", '["41"]', "[[4,1]", "[[4,1]]]"),
    *(
        "[[4,0]]",
        "[[4,-1]]",
        "[[-1,1]]",
        f"[[{LAST_BUCKET + 1},1]]",
        "[[4,1.0]]",
        "[[4.0,1]]",
        '[["4",1]]',
        '[[4,"1"]]',
    ),
    *("[[4,true]]", "[[true,4]]", "[[4,null]]", "[[4,NaN]]", "[[4,Infinity]]", "[[4,1],[4,1]]", "[[5,1],[4,1]]"),
    *(
        "[[[4],1]]",
        "[[4,[1]]]",
        f"[[4,{MAX_DURATIONS + 1}]]",
        f"[[4,{MAX_DURATIONS}],[5,1]]",
        f"[[4,1{'0' * 5_000}]]",
        "[" * 100_000,
    ),
]


@pytest.mark.parametrize("text", ILL_FORMED, ids=lambda text: text[:20])
def test_a_text_that_is_not_a_histogram_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="is not a duration histogram") as refused:
        DurationHistogram.load(text)
    assert len(str(refused.value)) < 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 200) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
)


@given(JSON | st.lists(st.tuples(st.integers(0, LAST_BUCKET), st.integers(1, 9)), max_size=3))
def test_a_text_is_refused_or_round_trips(value: Any) -> None:
    text = json.dumps(value)
    try:
        histogram = DurationHistogram.load(text)
    except InvalidValue:
        return
    assert json.loads(histogram.dump()) == json.loads(text)


@pytest.mark.parametrize(
    "counts", [{1: 0}, {1: -1}, {-1: 1}, {LAST_BUCKET + 1: 1}, {1: 1.5}, {True: 1}, {1: MAX_DURATIONS + 1}]
)
def test_an_invalid_histogram_is_refused(counts: dict[int, int]) -> None:
    with pytest.raises(InvalidValue, match="a histogram counts at"):
        DurationHistogram(counts)


def test_a_histogram_can_not_be_mutated() -> None:
    counts = {4: 1}
    histogram = DurationHistogram(counts)
    counts[4] = 2
    assert histogram.total == 1
    with pytest.raises(TypeError):
        histogram.counts[4] = 2  # type: ignore[index] # that is the point


def test_histograms_are_merged_tool_by_tool() -> None:
    known = {"build": DurationHistogram({4: 1}), "test": DurationHistogram({5: 1})}
    new = {
        "build": DurationHistogram({4: 2, 6: 1}),
        "deploy": DurationHistogram({7: 1}),
        "nothing": DurationHistogram(),
        "test": DurationHistogram(),
    }
    assert merge_histograms(known, new) == {
        "build": DurationHistogram({4: 3, 6: 1}),
        "deploy": DurationHistogram({7: 1}),
    }
    assert merge_histograms({}, {}) == {}


def test_at_the_limit_of_tools_only_stored_ones_are_updated() -> None:
    known = {f"tool {number}": DurationHistogram({4: 1}) for number in range(MAX_TOOLS - 1)}
    new = {name: DurationHistogram({5: 1}) for name in ("new", "newer", "tool 7")}
    changed = merge_histograms(known, new)
    assert changed == {"new": DurationHistogram({5: 1}), "tool 7": DurationHistogram({4: 1, 5: 1})}
    assert merge_histograms(known | changed, new).keys() == {"new", "tool 7"}
    assert merge_histograms(known | {"a": DurationHistogram(), "b": DurationHistogram()}, new).keys() == {"tool 7"}
