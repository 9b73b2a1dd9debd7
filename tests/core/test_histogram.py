"""Sketches of durations: small, close, quick to forget, and the same whichever way they come together."""

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


def sketch_of(durations: list[float]) -> DurationHistogram:
    sketch = DurationHistogram()
    for seconds in durations:
        sketch = sketch.with_duration(seconds)
    return sketch


SKETCHES = st.lists(ANY_SECONDS, max_size=30).map(sketch_of)
FULL = st.dictionaries(st.integers(0, LAST_BUCKET), st.integers(1, MAX_DURATIONS), max_size=40)


def full_sketch(counts: dict[int, int]) -> DurationHistogram:
    """As many as fit of these."""
    sketch = DurationHistogram()
    for bucket, count in counts.items():
        sketch = sketch.merged(DurationHistogram({bucket: count}))
    return sketch


def test_the_buckets_reach_from_a_millisecond_to_a_month_with_four_for_each_doubling() -> None:
    assert (BUCKET_EDGES[0], BUCKET_EDGES[-1], len(BUCKET_EDGES)) == (0.001, MONTH, LAST_BUCKET + 1)
    assert all(BUCKET_EDGES[bucket + 4] == pytest.approx(2 * BUCKET_EDGES[bucket]) for bucket in range(LAST_BUCKET - 4))
    assert BUCKET_EDGES[-2] < BUCKET_EDGES[-1] < 2**0.25 * BUCKET_EDGES[-2]


def test_an_empty_sketch_says_nothing() -> None:
    empty = DurationHistogram()
    assert (empty.total, empty.fraction_within(1), empty.quantile(0.5), empty.dump()) == (0, 0.0, None, "[]")
    assert empty.longer_than(0) == empty.merged(empty) == DurationHistogram.load("[]") == empty


def test_what_was_counted_is_told_again() -> None:
    sketch = sketch_of([0.1, 0.1, 1, 1, 1, 60, 60, 60, 60, 3_600])
    assert sketch.total == 10
    assert [sketch.fraction_within(at) for at in (0.01, 0.1, 1, 30, 60, 3_600)] == [0, 0.2, 0.5, 0.5, 0.9, 1]
    found = [sketch.quantile(share) for share in (0, 0.2, 0.5, 0.9, 1)]
    assert found == [pytest.approx(seconds, rel=0.19) for seconds in (0.1, 0.1, 1, 60, 3_600)]
    assert sketch.longer_than(1) == sketch_of([60, 60, 60, 60, 3_600])


@given(SECONDS)
@example(0.001)
@example(MONTH)
def test_what_is_told_of_a_duration_is_at_most_a_fifth_too_long_and_never_too_short(seconds: float) -> None:
    told = DurationHistogram().with_duration(seconds).quantile(0.5)
    assert told is not None
    assert seconds <= told <= max(0.001, 1.19 * seconds)


@pytest.mark.parametrize("bucket", [0, 1, 2, 3, LAST_BUCKET - 1, LAST_BUCKET])
def test_a_bucket_has_its_upper_edge_and_not_what_is_beyond(bucket: int) -> None:
    assert DurationHistogram().with_duration(BUCKET_EDGES[bucket]) == DurationHistogram({bucket: 1})
    beyond = DurationHistogram().with_duration(math.nextafter(BUCKET_EDGES[bucket], math.inf))
    assert beyond == DurationHistogram({min(bucket + 1, LAST_BUCKET): 1})


@pytest.mark.parametrize(
    ("seconds", "bucket"), [(-1, 0), (-0.0, 0), (0, 0), (1e-9, 0), (1e9, LAST_BUCKET), (10**300, LAST_BUCKET)]
)
def test_what_lies_outside_is_counted_at_the_edge(seconds: float, bucket: int) -> None:
    assert DurationHistogram().with_duration(seconds) == DurationHistogram({bucket: 1})


NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "huge": 10**400, "too huge to be told": 10**5_000}


@pytest.mark.parametrize("seconds", NOT_FINITE.values(), ids=NOT_FINITE)
def test_what_is_not_finite_is_refused(seconds: float) -> None:
    for ask in (
        DurationHistogram().with_duration,
        DurationHistogram().fraction_within,
        DurationHistogram({1: 1}).longer_than,
        DurationHistogram({1: 1}).fraction_within,
    ):
        with pytest.raises(InvalidValue, match="a finite number of seconds, not"):
            ask(seconds)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan, math.inf])
def test_a_share_is_from_0_to_1(share: float) -> None:
    with pytest.raises(InvalidValue, match="from 0 to 1"):
        DurationHistogram({1: 1}).quantile(share)


@given(SKETCHES, SKETCHES, SKETCHES)
def test_sketches_come_together_in_any_order(
    one: DurationHistogram, two: DurationHistogram, three: DurationHistogram
) -> None:
    assert one.merged(two) == two.merged(one)
    assert one.merged(two).merged(three) == one.merged(two.merged(three))
    assert one.merged(two).total == one.total + two.total
    assert one.merged(DurationHistogram()) == one


@given(FULL, FULL)
def test_full_sketches_come_together_in_either_order_within_the_bound(one: dict[int, int], two: dict[int, int]) -> None:
    merged = full_sketch(one).merged(full_sketch(two))
    assert merged == full_sketch(two).merged(full_sketch(one))
    assert merged.total <= MAX_DURATIONS
    assert (merged.total > 0) == bool(one or two)


@given(SKETCHES, ANY_SECONDS, ANY_SECONDS, SHARES, SHARES)
def test_what_is_told_grows_with_what_is_asked(
    sketch: DurationHistogram, one: float, two: float, share: float, other: float
) -> None:
    shorter, longer = sorted([one, two])
    assert 0 <= sketch.fraction_within(shorter) <= sketch.fraction_within(longer) <= 1
    low, high = (sketch.quantile(part) for part in sorted([share, other]))
    assert low is None if high is None else (low is not None and low <= high)


@given(SKETCHES, ANY_SECONDS, SHARES)
def test_shares_quantiles_and_what_is_longer_agree(sketch: DurationHistogram, seconds: float, share: float) -> None:
    longer = sketch.longer_than(seconds)
    assert sketch.total - longer.total == pytest.approx(sketch.fraction_within(seconds) * sketch.total)
    assert longer.counts.items() <= sketch.counts.items()
    left = longer.quantile(0)
    assert left is None or left > seconds
    within = sketch.quantile(share)
    assert within is None or sketch.fraction_within(within) >= share


def test_when_there_are_too_many_all_fade_and_lone_ones_vanish() -> None:
    sketch = DurationHistogram({10: 500, 20: 11, 90: 1})
    assert sketch.total == MAX_DURATIONS
    assert sketch.with_duration(BUCKET_EDGES[20]) == DurationHistogram({10: 250, 20: 6})
    assert sketch.with_duration(BUCKET_EDGES[50]) == DurationHistogram({10: 250, 20: 5})
    assert sketch.merged(sketch) == DurationHistogram({10: 500, 20: 11, 90: 1})
    assert DurationHistogram({5: 256}).merged(DurationHistogram({5: 256})) == DurationHistogram({5: 512})


def test_the_flattest_sketch_there_can_be_does_not_vanish() -> None:
    flat = DurationHistogram(dict.fromkeys(range(LAST_BUCKET + 1), MAX_DURATIONS // (LAST_BUCKET + 1)))
    while flat.total < MAX_DURATIONS:
        flat = flat.with_duration(BUCKET_EDGES[flat.total % 8])
    assert 0 < flat.with_duration(BUCKET_EDGES[0]).total < MAX_DURATIONS


def test_a_tool_that_has_become_slower_is_known_as_such_soon() -> None:
    sketch = DurationHistogram({10: MAX_DURATIONS})
    for _ in range(MAX_DURATIONS):
        sketch = sketch.with_duration(60)
    assert sketch.quantile(0.5) == pytest.approx(60, rel=0.19)


@given(SKETCHES | FULL.map(full_sketch))
def test_a_sketch_comes_back_from_its_text(sketch: DurationHistogram) -> None:
    assert DurationHistogram.load(sketch.dump()) == sketch
    assert len(sketch.dump()) < 2_000


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
def test_a_text_that_is_no_sketch_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="is no sketch of durations") as refused:
        DurationHistogram.load(text)
    assert len(str(refused.value)) < 400


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 200) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
)


@given(JSON | st.lists(st.tuples(st.integers(0, LAST_BUCKET), st.integers(1, 9)), max_size=3))
def test_a_text_is_refused_or_says_what_the_sketch_says(value: Any) -> None:
    text = json.dumps(value)
    try:
        sketch = DurationHistogram.load(text)
    except InvalidValue:
        return
    assert json.loads(sketch.dump()) == json.loads(text)


@pytest.mark.parametrize(
    "counts", [{1: 0}, {1: -1}, {-1: 1}, {LAST_BUCKET + 1: 1}, {1: 1.5}, {True: 1}, {1: MAX_DURATIONS + 1}]
)
def test_a_sketch_that_cannot_be_is_refused(counts: dict[int, int]) -> None:
    with pytest.raises(InvalidValue, match="a sketch counts at"):
        DurationHistogram(counts)


def test_nobody_changes_a_sketch_behind_its_back() -> None:
    counts = {4: 1}
    sketch = DurationHistogram(counts)
    counts[4] = 2
    assert sketch.total == 1
    with pytest.raises(TypeError):
        sketch.counts[4] = 2  # type: ignore[index] # that is the point


def test_news_are_merged_tool_by_tool() -> None:
    known = {"build": DurationHistogram({4: 1}), "test": DurationHistogram({5: 1})}
    news = {
        "build": DurationHistogram({4: 2, 6: 1}),
        "deploy": DurationHistogram({7: 1}),
        "nothing": DurationHistogram(),
        "test": DurationHistogram(),
    }
    assert merge_histograms(known, news) == {
        "build": DurationHistogram({4: 3, 6: 1}),
        "deploy": DurationHistogram({7: 1}),
    }
    assert merge_histograms({}, {}) == {}


def test_when_enough_tools_are_known_only_those_learn() -> None:
    known = {f"tool {number}": DurationHistogram({4: 1}) for number in range(MAX_TOOLS - 1)}
    news = {name: DurationHistogram({5: 1}) for name in ("new", "newer", "tool 7")}
    changed = merge_histograms(known, news)
    assert changed == {"new": DurationHistogram({5: 1}), "tool 7": DurationHistogram({4: 1, 5: 1})}
    assert merge_histograms(known | changed, news).keys() == {"new", "tool 7"}
    assert merge_histograms(known | {"a": DurationHistogram(), "b": DurationHistogram()}, news).keys() == {"tool 7"}
