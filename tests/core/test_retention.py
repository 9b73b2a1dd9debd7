"""How long a task is retained, and that its promised ttl covers the time it may run."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raincheck.core.commands import Complete, Expire
from raincheck.core.payload import encode
from raincheck.core.policies import DEFAULT_RETENTION, MAX_KEEP, Retention, clamp_ttl
from raincheck.errors import ConfigurationError
from tests.support.core.tasks import CLAIM, START, after, at, change, created

ZERO = timedelta(0)
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


BAD = [timedelta(microseconds=-1), timedelta.min, MAX_KEEP + timedelta(microseconds=1), timedelta.max]


@pytest.mark.parametrize("name", ["keep", "ttl"])
@pytest.mark.parametrize("value", BAD, ids=str)
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
