"""Retry and retention policies: waits between attempts, and how long a task is retained."""

from datetime import UTC, datetime, timedelta
from math import inf, nan
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raincheck.core.commands import Complete, Expire
from raincheck.core.policies import (
    DEFAULT_RETENTION,
    DEFAULT_RETRY,
    MAX_KEEP,
    MAX_WAIT,
    OnInterrupt,
    Retention,
    RetryPolicy,
    backoff_seconds,
    clamp_ttl,
)
from raincheck.core.values import encode
from raincheck.errors import ConfigurationError, InvalidValue
from tests.support.core.tasks import CLAIM, START, after, at, change, created

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


KEEPS = st.timedeltas(ZERO, MAX_KEEP)
RETENTIONS = st.builds(Retention, KEEPS, st.none() | KEEPS)
MONTH = timedelta(days=31, microseconds=1)
"""More than 2**31 milliseconds, where 32-bit implementations overflow."""


@given(RETENTIONS, KEEPS)
def test_a_task_is_retained_for_its_keep_and_at_least_for_its_ttl(retention: Retention, ran_for: timedelta) -> None:
    expires_at = retention.expires_at(START, START + ran_for)
    assert expires_at >= START + ran_for + retention.keep
    assert expires_at >= START + (retention.ttl or ZERO)
    assert expires_at in (START + ran_for + retention.keep, START + (retention.ttl or ZERO))


@given(RETENTIONS, KEEPS)
def test_the_promised_ttl_covers_the_deadline_and_the_retention(
    retention: Retention, until_deadline: timedelta
) -> None:
    promised = retention.promised_ttl(START, START + until_deadline)
    assert promised is not None
    assert promised >= until_deadline + retention.keep
    assert promised >= (retention.ttl or ZERO)


@given(RETENTIONS)
def test_no_ttl_is_promised_without_a_deadline(retention: Retention) -> None:
    assert retention.promised_ttl(START, None) is None


@given(RETENTIONS, KEEPS, st.floats(0.0, 1.0))
def test_a_task_that_ends_early_is_retained_for_its_ttl(
    retention: Retention, until_deadline: timedelta, part: float
) -> None:
    early, late = (retention.expires_at(START, START + until_deadline * share) for share in (part, 1.0))
    assert START + (retention.ttl or ZERO) <= early <= late


def test_durations_beyond_25_days_are_exact() -> None:
    retention = Retention(keep=MONTH, ttl=MONTH * 2)
    assert retention.expires_at(START, START) == START + MONTH * 2
    assert retention.expires_at(START, START + MONTH * 3) == START + MONTH * 4
    assert retention.promised_ttl(START, START + MONTH * 3) == MONTH * 4
    assert clamp_ttl(MONTH, MONTH * 2) == MONTH
    assert clamp_ttl(MAX_KEEP, MAX_KEEP) == MAX_KEEP


def test_the_ttl_of_a_live_task_is_the_promised_one_and_of_an_ended_task_the_actual_one() -> None:
    task = created(deadline_at=at(600), retention=Retention(keep=timedelta(seconds=60)))
    assert task.ttl == timedelta(seconds=660)
    running = after(task, CLAIM)
    assert running.ttl == timedelta(seconds=660)
    assert change(running, Complete(1, encode("report")), 40).after.ttl == timedelta(seconds=100)
    assert change(running, Expire(), 630).after.ttl == timedelta(seconds=690)
    assert created().ttl is None


def test_a_task_with_the_latest_possible_deadline_still_has_a_ttl() -> None:
    task = created(deadline_at=datetime.max.replace(tzinfo=UTC))
    assert task.ttl is None or task.ttl > timedelta(days=365)


@given(st.timedeltas(), KEEPS)
@example(timedelta.max, MAX_KEEP)
@example(timedelta.min, MAX_KEEP)
@example(timedelta(microseconds=-1), ZERO)
def test_a_requested_ttl_is_clamped(requested: timedelta, maximum: timedelta) -> None:
    clamped = clamp_ttl(requested, maximum)
    assert clamped is not None
    assert ZERO <= clamped <= maximum
    assert clamped == requested or not ZERO <= requested <= maximum
    Retention(ttl=clamped)


@pytest.mark.parametrize(
    ("requested", "given"), [(-9, 0), (0, 0), (1, 1), (59, 59), (60, 60), (61, 60), (10**9, 60)], ids=str
)
def test_a_requested_ttl_is_granted_up_to_the_maximum(requested: int, given: int) -> None:
    assert clamp_ttl(timedelta(seconds=requested), timedelta(seconds=60)) == timedelta(seconds=given)


def test_by_default_a_task_is_retained_for_a_day_and_no_ttl_is_promised() -> None:
    assert Retention() == DEFAULT_RETENTION == Retention(keep=timedelta(hours=24), ttl=None)


def test_without_a_requested_ttl_none_is_granted() -> None:
    assert clamp_ttl(None, MAX_KEEP) is None


BAD_DURATIONS = [timedelta(microseconds=-1), timedelta.min, MAX_KEEP + timedelta(microseconds=1), timedelta.max]


@pytest.mark.parametrize("name", ["keep", "ttl"])
@pytest.mark.parametrize("value", BAD_DURATIONS, ids=str)
def test_an_invalid_retention_is_refused_when_it_is_created(name: str, value: timedelta) -> None:
    fields: dict[str, Any] = {name: value}
    with pytest.raises(ConfigurationError, match=f"retention {name} must be between 0 and 3650 days"):
        Retention(**fields)


@pytest.mark.parametrize("name", ["keep", "ttl"])
def test_a_retention_at_the_edge_of_its_limits_is_accepted(name: str) -> None:
    for value in (ZERO, MAX_KEEP):
        fields: dict[str, Any] = {name: value}
        assert getattr(Retention(**fields), name) == value


@pytest.mark.parametrize("wrong", [{"keep": 60}, {"ttl": "a day"}])
def test_a_retention_with_values_of_the_wrong_type_is_refused_when_it_is_created(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="must be a timedelta, not"):
        Retention(**wrong)
