"""The choice of a wait: the cheapest one by the measured calls, with a reason."""

from collections.abc import Mapping
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raincheck.core.histogram import BUCKET_EDGES, LAST_BUCKET, MAX_DURATIONS, DurationHistogram
from raincheck.server import wait_policy
from raincheck.server.tools.policy import MAX_INLINE_WAIT, Mode, TaskPolicy
from raincheck.server.wait_policy import (
    MARGIN,
    MAX_CHOSEN_WAIT,
    MIN_SAMPLES,
    SHORT_WAIT,
    SLACK,
    TASK_COST,
    DurationEstimate,
    WaitDecision,
    choose_fallback_wait,
    choose_inline_wait,
)

AUTO = TaskPolicy()

QUICK, SECOND, HALF_A_MINUTE, MINUTE, HOUR = 0.128, 1.024, 32.768, 65.536, 4194.304
"""About: the upper edges of their buckets, so that a histogram has exactly these values."""

WAITS = [0.0, *(edge + SLACK for edge in BUCKET_EDGES if edge + SLACK <= MAX_CHOSEN_WAIT)]


def took(counts: Mapping[float, int]) -> DurationHistogram:
    """So many calls that took so many seconds."""
    histogram = DurationHistogram()
    for seconds, count in counts.items():
        for _ in range(count):
            histogram = histogram.with_duration(seconds)
    return histogram


def measured(counts: Mapping[float, int], expected: float | None = None) -> DurationEstimate:
    return DurationEstimate.from_measurements(took(counts), expected)


def cost(histogram: DurationHistogram, wait: float) -> float:
    """What it costs to wait so long, on average: nothing for a call that ends, the wait and a task for any other."""
    outlast = sum(
        count for bucket, count in histogram.counts.items() if not wait or BUCKET_EDGES[bucket] + SLACK > wait
    )
    return outlast / histogram.total * (TASK_COST + wait)


@pytest.mark.parametrize(
    ("counts", "wait"),
    [
        pytest.param({QUICK: 10}, QUICK, id="all quick"),
        pytest.param({8 * SECOND: 100}, 8 * SECOND, id="all sure to end before long"),
        pytest.param({0.0: 10}, BUCKET_EDGES[0], id="all at once"),
        pytest.param({0.0: 5, QUICK: 5}, QUICK, id="some at once and all quick"),
        pytest.param({MINUTE: 10}, 0.0, id="all slow"),
        pytest.param({HOUR: 300, MINUTE: 200}, 0.0, id="all slow in two ways"),
        pytest.param({QUICK: 9, MINUTE: 1}, QUICK, id="mostly quick"),
        pytest.param({QUICK: 2, HOUR: 8}, QUICK, id="a few that are so quick that it costs nothing to wait for them"),
        pytest.param({QUICK: 1, HOUR: 99}, 0.0, id="too few that are quick"),
        pytest.param({8 * SECOND: 5, HOUR: 5}, 0.0, id="half of them soon and half never"),
        pytest.param({QUICK: 50, SECOND: 40, HOUR: 10}, SECOND, id="two quick humps and a slow one"),
        pytest.param({QUICK: 488, 2 * QUICK: 23, HOUR: 1}, 2 * QUICK, id="the last ones before a gap"),
        pytest.param({4 * SECOND: 486, 8 * SECOND: 25, HOUR: 1}, 8 * SECOND, id="the last ones before ten seconds"),
        pytest.param({second * 0.5: 1 for second in range(1, 11)}, 5, id="evenly up to five seconds"),
        pytest.param({second * 10: 1 for second in range(1, 11)}, 0.0, id="evenly up to a hundred seconds"),
    ],
)
def test_a_call_waits_as_long_as_costs_least_over_the_measured_calls(counts: Mapping[float, int], wait: float) -> None:
    estimate = measured(counts)
    chosen = choose_inline_wait(AUTO, estimate).seconds
    assert chosen == min(WAITS, key=lambda one: cost(estimate.histogram, one))
    # Within the bucket that it is in, and a little for the end to get around.
    assert wait <= max(chosen - SLACK, 0.0) <= wait * 2**0.25


def test_of_waits_that_cost_the_same_the_shortest_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    # One that half of the calls outlast costs as much as none, if a task costs as much as the wait.
    monkeypatch.setattr(wait_policy, "TASK_COST", SECOND + SLACK)
    assert choose_inline_wait(AUTO, measured({SECOND: 5, HOUR: 5})).seconds == 0.0
    assert choose_inline_wait(AUTO, measured({SECOND: 6, HOUR: 4})).seconds == SECOND + SLACK


def test_a_call_longer_than_ten_seconds_becomes_a_task_however_certain_its_end() -> None:
    assert (
        choose_inline_wait(AUTO, measured({BUCKET_EDGES[53]: MAX_DURATIONS})).seconds
        == BUCKET_EDGES[53] + SLACK
        < MAX_CHOSEN_WAIT
    )
    assert choose_inline_wait(AUTO, measured({BUCKET_EDGES[54]: MAX_DURATIONS})).seconds == 0.0


SKETCHES = st.dictionaries(st.integers(0, LAST_BUCKET), st.integers(1, 60), min_size=1, max_size=8).map(
    DurationHistogram
)


@given(SKETCHES)
@example(DurationHistogram({52: 486, 53: 25, 99: 1}))
@example(DurationHistogram({0: MAX_DURATIONS}))
@example(DurationHistogram({54: 10}))
def test_no_other_wait_would_cost_less(histogram: DurationHistogram) -> None:
    chosen = choose_inline_wait(AUTO, DurationEstimate(histogram, "in tests")).seconds
    assert 0 <= chosen <= MAX_CHOSEN_WAIT
    for wait in (*WAITS, MAX_CHOSEN_WAIT):
        assert cost(histogram, chosen) <= cost(histogram, wait) + 1e-9


@given(SKETCHES, st.integers())
def test_the_choice_does_not_depend_on_the_order_of_the_calls(histogram: DurationHistogram, seed: int) -> None:
    mixed = list(histogram.counts.items())
    Random(seed).shuffle(mixed)
    again = DurationHistogram(dict(mixed))
    assert choose_inline_wait(AUTO, DurationEstimate(histogram, "so")) == choose_inline_wait(
        AUTO, DurationEstimate(again, "so")
    )
    assert choose_fallback_wait(AUTO, DurationEstimate(histogram, "so"), 45) == choose_fallback_wait(
        AUTO, DurationEstimate(again, "so"), 45
    )


@given(SKETCHES, st.none() | st.floats(0, MAX_INLINE_WAIT), st.sampled_from([0.1, 1, 45, 3_600]))
def test_a_caller_without_tasks_never_waits_longer_than_it_may(
    histogram: DurationHistogram, inline_for: float | None, wait: float
) -> None:
    chosen = choose_fallback_wait(
        TaskPolicy(inline_for=inline_for), DurationEstimate(histogram, "in tests"), wait
    ).seconds
    assert 0 < chosen <= wait


@given(SKETCHES, st.lists(st.floats(0, 10**7), min_size=2))
def test_the_expected_end_never_gets_earlier_while_a_call_runs(
    histogram: DurationHistogram, moments: list[float]
) -> None:
    estimate = DurationEstimate(histogram, "in tests")
    ends = [passed + (estimate.remaining_after(passed) or 0.0) for passed in sorted(moments)]
    assert all(earlier <= later + 1e-6 for earlier, later in pairwise(ends))


def test_the_time_left_is_estimated_from_calls_that_took_longer() -> None:
    estimate = measured({SECOND: 8, MINUTE: 2})
    assert estimate.remaining_after(0) == SECOND
    assert estimate.remaining_after(SECOND / 2) == SECOND / 2
    assert estimate.remaining_after(2 * SECOND) == pytest.approx(MINUTE - 2 * SECOND)
    assert estimate.remaining_after(MINUTE - 5) == pytest.approx(5)
    # Nobody has seen one that took so long.
    assert estimate.remaining_after(2 * MINUTE) is None
    assert DurationEstimate.from_measurements(DurationHistogram(), None).remaining_after(0) is None


def test_the_expected_duration_counts_until_enough_calls_are_measured() -> None:
    for count in range(MIN_SAMPLES):
        assert choose_inline_wait(AUTO, measured({HOUR: count}, expected=0.1)).seconds == 0.1 * MARGIN + SLACK
        # Without that, nothing is known, whatever the few that were measured took.
        assert choose_inline_wait(AUTO, measured({QUICK: count})).seconds == 0.0
    assert choose_inline_wait(AUTO, measured({HOUR: MIN_SAMPLES}, expected=0.1)).seconds == 0.0
    assert choose_inline_wait(AUTO, measured({QUICK: MIN_SAMPLES - 1}, expected=30)).seconds == 0.0
    assert choose_inline_wait(AUTO, measured({QUICK: MIN_SAMPLES}, expected=30)).seconds == QUICK + SLACK
    assert choose_inline_wait(AUTO, measured({QUICK: MIN_SAMPLES})).seconds == QUICK + SLACK


@pytest.mark.parametrize("expected", [0, 0.0001, 0.1, 1, 4])
def test_a_call_may_well_take_twice_as_long_as_its_author_expects(expected: float) -> None:
    assert (
        choose_inline_wait(AUTO, DurationEstimate.from_measurements(DurationHistogram(), expected)).seconds
        == 2 * expected + SLACK
    )


@pytest.mark.parametrize("expected", [5, 30, 86_400])
def test_a_call_expected_to_take_long_becomes_a_task_at_once(expected: float) -> None:
    assert choose_inline_wait(AUTO, DurationEstimate.from_measurements(DurationHistogram(), expected)).seconds == 0.0


def test_without_measurements_the_time_left_is_the_expected_duration() -> None:
    left = DurationEstimate.from_measurements(DurationHistogram(), 30).remaining_after(0)
    assert left is not None
    assert 30 <= left <= 30 * 2**0.25


@pytest.mark.parametrize("mode", ["auto", "required"])
@pytest.mark.parametrize("inline_for", [0, 2, MAX_INLINE_WAIT])
@pytest.mark.parametrize("counts", [{}, {QUICK: 100}, {HOUR: 100}], ids=str)
def test_the_wait_that_the_author_sets_is_used(mode: Mode, inline_for: float, counts: Mapping[float, int]) -> None:
    policy = TaskPolicy(mode=mode, inline_for=inline_for, expected=30)
    assert choose_inline_wait(policy, measured(counts, expected=30)) == WaitDecision(inline_for, "set by its author")


def test_a_tool_that_requires_tasks_never_waits() -> None:
    required = TaskPolicy(mode="required")
    assert choose_inline_wait(required, measured({QUICK: 100})) == WaitDecision(
        0.0, 'it always runs as a task (mode="required")'
    )


@pytest.mark.parametrize(
    ("estimate", "why"),
    [
        (measured({QUICK: 12}), "of the latest 12 calls, 100% end within 378 ms"),
        (measured({SECOND: 93, HOUR: 7}), "of the latest 100 calls, 93% end within 1.3 s"),
        (measured({HALF_A_MINUTE: 10}), "of the latest 10 calls, 0% end within 10 s: it is not worth waiting"),
        (measured({QUICK: 1, HOUR: 99}), "of the latest 100 calls, 1% end within 10 s: it is not worth waiting"),
        (DurationEstimate.from_measurements(DurationHistogram(), 0.128), "its author expects 128 ms"),
        (
            DurationEstimate.from_measurements(DurationHistogram(), 30),
            "its author expects 30 s: it is not worth waiting",
        ),
        (
            DurationEstimate.from_measurements(DurationHistogram(), None),
            "0 of 10 calls are measured, and no expected= was declared",
        ),
        (measured({QUICK: 9}), "9 of 10 calls are measured, and no expected= was declared"),
    ],
)
def test_the_reason_for_a_wait_is_a_text(estimate: DurationEstimate, why: str) -> None:
    assert choose_inline_wait(AUTO, estimate).reason == why


@pytest.mark.parametrize("seconds", [9.0, 9.8, 10.0, 10.1, 11.0, 11.6, 12.0])
def test_a_reason_claims_that_all_calls_end_in_time_only_if_it_waits_for_them(seconds: float) -> None:
    chosen = choose_inline_wait(AUTO, measured({seconds: 10}))
    assert ("100% end" in chosen.reason) is (chosen.seconds > 0)


@pytest.mark.parametrize(
    ("estimate", "settings", "seconds"),
    [
        (DurationEstimate.from_measurements(DurationHistogram(), None), {}, 45),
        (DurationEstimate.from_measurements(DurationHistogram(), 0.1), {}, 45),
        (DurationEstimate.from_measurements(DurationHistogram(), 30), {}, 45),
        (DurationEstimate.from_measurements(DurationHistogram(), 300), {}, SHORT_WAIT),
        (measured({HOUR: 9}), {}, 45),
        (measured({HOUR: 10}), {}, SHORT_WAIT),
        (measured({MINUTE: 100}), {}, SHORT_WAIT),
        (measured({HALF_A_MINUTE: 10}), {}, 45),
        (measured({HALF_A_MINUTE: 1, HOUR: 9}), {}, 45),
        (measured({HALF_A_MINUTE: 1, HOUR: 10}), {}, SHORT_WAIT),
        (measured({HOUR: 10}), {"inline_for": 20}, 20),
        (measured({HOUR: 10}), {"inline_for": 0}, SHORT_WAIT),
        (measured({QUICK: 10}), {"inline_for": 0}, 45),
    ],
)
def test_a_caller_without_tasks_waits_as_long_as_it_may_unless_that_is_of_no_use(
    estimate: DurationEstimate, settings: Mapping[str, Any], seconds: float
) -> None:
    assert choose_fallback_wait(TaskPolicy(**settings), estimate, 45).seconds == seconds


@pytest.mark.parametrize(("counts", "wait", "seconds"), [({HOUR: 10}, 2, 2), ({2 * HOUR: 10}, 3_600, SHORT_WAIT)])
def test_a_caller_without_tasks_waits_a_little_even_if_the_call_is_slow(
    counts: Mapping[float, int], wait: float, seconds: float
) -> None:
    assert choose_fallback_wait(AUTO, measured(counts), wait).seconds == seconds


def test_the_reason_for_a_fallback_wait_is_a_text() -> None:
    assert choose_fallback_wait(AUTO, measured({QUICK: 10}), 45).reason == "such callers wait for fallback_wait seconds"
    slow = choose_fallback_wait(AUTO, measured({SECOND: 1, HOUR: 19}), 45)
    assert slow.reason == "of the latest 20 calls, 5% end within 45 s: waiting longer is of no use"
    expected = choose_fallback_wait(AUTO, DurationEstimate.from_measurements(DurationHistogram(), 300), 45)
    assert expected.reason == "its author expects 5 min: waiting longer is of no use"
