"""Waits between attempts are within limits, grow, and do not overflow."""

from datetime import timedelta
from math import inf, nan
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raincheck.core.policies import DEFAULT_RETRY, MAX_WAIT, OnInterrupt, RetryPolicy, backoff_seconds
from raincheck.errors import ConfigurationError, InvalidValue

ZERO = timedelta(0)
WAITS = st.timedeltas(ZERO, MAX_WAIT)
CHANCES = st.floats(0.0, 1.0)


@st.composite
def policies(draw: st.DrawFn, jitter: st.SearchStrategy[float] = CHANCES) -> RetryPolicy:
    first, most = sorted([draw(WAITS), draw(WAITS)])
    return RetryPolicy(
        attempts=draw(st.integers(1, 10**7)),
        first_wait=first,
        factor=draw(st.floats(1.0, 1_000.0)),
        max_wait=most,
        jitter=draw(jitter),
    )


@given(policies(), st.integers(1, 2_000), CHANCES)
@example(RetryPolicy(first_wait=MAX_WAIT, max_wait=MAX_WAIT, factor=1_000.0), 2_000, 1.0)
@example(RetryPolicy(first_wait=ZERO, max_wait=ZERO), 1, 0.0)
@example(RetryPolicy(jitter=1.0), 3, 1.0)
def test_a_wait_is_never_negative_and_never_longer_than_the_maximum(
    policy: RetryPolicy, failures: int, chance: float
) -> None:
    assert ZERO <= policy.wait(failures, chance) <= policy.max_wait


@given(policies(jitter=st.just(0.0)), st.integers(1, 200), CHANCES)
def test_without_jitter_a_wait_is_never_shorter_than_the_one_before(
    policy: RetryPolicy, failures: int, chance: float
) -> None:
    waits = [policy.wait(number, chance) for number in (failures, failures + 1)]
    assert policy.first_wait <= waits[0] <= waits[1]


@given(policies(), st.integers(1, 200), CHANCES, CHANCES)
def test_a_higher_chance_shortens_the_wait_down_to_the_part_without_jitter(
    policy: RetryPolicy, failures: int, one: float, other: float
) -> None:
    less, more = sorted([one, other])
    full = policy.wait(failures, 0.0)
    assert policy.wait(failures, more) <= policy.wait(failures, less) <= full
    assert policy.wait(failures, 1.0) == full * (1.0 - policy.jitter)


@pytest.mark.parametrize(("failures", "seconds"), [(1, 2), (2, 6), (3, 18), (4, 54), (5, 60), (6, 60), (1_000, 60)])
def test_a_wait_grows_by_its_factor_up_to_the_maximum(failures: int, seconds: int) -> None:
    policy = RetryPolicy(first_wait=timedelta(seconds=2), factor=3.0, max_wait=timedelta(minutes=1), jitter=0.0)
    assert policy.wait(failures, 0.7) == timedelta(seconds=seconds)


def test_by_default_half_of_a_wait_is_jitter() -> None:
    policy = RetryPolicy(first_wait=timedelta(seconds=8), jitter=0.5)
    assert [policy.wait(1, chance).total_seconds() for chance in (0.0, 0.5, 1.0)] == [8.0, 6.0, 4.0]


@pytest.mark.parametrize("factor", [2.0, 1_000.0, 1.0])
def test_a_million_failures_do_not_overflow(factor: float) -> None:
    # At a factor of 1 the wait never reaches the maximum, so this runs the whole million: about 0.4 s, once.
    policy = RetryPolicy(attempts=10**7, factor=factor, jitter=0.0)
    assert policy.wait(10**6, 0.0) == (policy.first_wait if factor == 1.0 else policy.max_wait)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"attempts": 0}, "at least one attempt, not 0"),
    ({"attempts": -1}, "at least one attempt, not -1"),
    ({"first_wait": timedelta(microseconds=-1)}, "0 <= first_wait <= max_wait"),
    ({"first_wait": timedelta(minutes=6)}, "0 <= first_wait <= max_wait"),
    ({"max_wait": MAX_WAIT + timedelta(microseconds=1)}, "<= 365 days"),
    ({"max_wait": timedelta.max}, "<= 365 days"),
    ({"factor": 0.999}, "factor must be between 1 and 1000, not 0.999"),
    ({"factor": 1_000.1}, "factor must be between 1 and 1000"),
    ({"factor": nan}, "factor must be between 1 and 1000, not nan"),
    ({"factor": inf}, "factor must be between 1 and 1000, not inf"),
    ({"factor": -inf}, "factor must be between 1 and 1000"),
    ({"jitter": -0.1}, "jitter must be between 0 and 1, not -0.1"),
    ({"jitter": 1.1}, "jitter must be between 0 and 1"),
    ({"jitter": nan}, "jitter must be between 0 and 1, not nan"),
    ({"jitter": inf}, "jitter must be between 0 and 1"),
]


@pytest.mark.parametrize(("fields", "message"), BAD, ids=[str(fields) for fields, _ in BAD])
def test_an_invalid_policy_is_refused_when_it_is_created(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        RetryPolicy(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"attempts": 1},
        {"first_wait": ZERO, "max_wait": ZERO},
        {"first_wait": MAX_WAIT, "max_wait": MAX_WAIT},
        {"factor": 1.0},
        {"factor": 1_000.0},
        {"jitter": 0.0},
        {"jitter": 1.0},
    ],
    ids=str,
)
def test_a_policy_at_the_edge_of_its_limits_is_accepted(fields: dict[str, Any]) -> None:
    policy = RetryPolicy(**fields)
    assert ZERO <= policy.wait(3, 0.5) <= policy.max_wait


@pytest.mark.parametrize("attempts", [1, 3])
def test_another_attempt_is_allowed_until_the_limit_of_failures(attempts: int) -> None:
    policy = RetryPolicy(attempts=attempts)
    assert [policy.may_retry(failures) for failures in (attempts - 1, attempts, attempts + 1)] == [True, False, False]


def test_by_default_there_are_three_attempts_with_growing_waits_and_an_interrupted_task_is_retried() -> None:
    assert RetryPolicy() == DEFAULT_RETRY
    assert (DEFAULT_RETRY.attempts, DEFAULT_RETRY.on_interrupt) == (3, OnInterrupt.RETRY)
    assert [DEFAULT_RETRY.wait(failures, 0.0).total_seconds() for failures in (1, 2, 3, 99)] == [1, 2, 4, 300]
    assert DEFAULT_RETRY.wait(1, 1.0).total_seconds() == 0.5


@pytest.mark.parametrize("chance", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_chance_out_of_range_is_refused(chance: float) -> None:
    with pytest.raises(InvalidValue, match="chance"):
        RetryPolicy().wait(1, chance)


@pytest.mark.parametrize("wrong", [{"attempts": 2.5}, {"attempts": "3"}, {"first_wait": 1}, {"max_wait": 60.0}])
def test_a_policy_with_values_of_the_wrong_type_is_refused_when_it_is_created(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=f"not {next(iter(wrong.values()))!r}"):
        RetryPolicy(**wrong)


def test_the_backoff_for_an_unavailable_store_grows_and_stays_bounded() -> None:
    assert [backoff_seconds(tries) for tries in range(1, 7)] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0]
    assert backoff_seconds(100_000) == 5.0
