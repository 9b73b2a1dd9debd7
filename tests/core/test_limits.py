"""Quotas of an owner: what they refuse, and when a retry is possible."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raincheck.core.commands import Cancel
from raincheck.core.policies import MAX_WINDOW, Limits, Quota
from raincheck.errors import ConfigurationError, QuotaExceeded
from tests.support.core.tasks import after, at, created


def test_a_live_quota_limits_the_number_of_live_tasks() -> None:
    quota = Quota(live=3)
    for live in (0, 2):
        quota.check_live(live)
    for live in (3, 4):
        with pytest.raises(QuotaExceeded) as full:
            quota.check_live(live)
        assert (full.value.which, full.value.limit, full.value.retry_after) == ("live tasks", 3, None)


def test_a_creation_quota_is_full_while_the_nth_latest_is_within_the_window() -> None:
    quota = Quota(created=5, window=timedelta(seconds=60))
    quota.check_created(None, at(100))
    quota.check_created(at(40), at(100))
    quota.check_created(at(0), at(100))
    with pytest.raises(QuotaExceeded) as full:
        quota.check_created(at(40.5), at(100))
    assert (full.value.which, full.value.limit) == ("new tasks", 5)
    assert full.value.retry_after == timedelta(seconds=0.5)


def test_an_ended_task_counts_as_created_but_not_as_live() -> None:
    ended, alive = after(created(), Cancel("alice")), created()
    Quota(live=2).check([ended, ended, alive], at(0))
    with pytest.raises(QuotaExceeded, match="too many live tasks"):
        Quota(live=1).check([ended, ended, alive], at(0))
    with pytest.raises(QuotaExceeded, match="too many new tasks"):
        Quota(created=3).check([ended, ended, alive], at(0))
    Quota(created=4).check([ended, ended, alive], at(0))


def test_a_creation_is_allowed_when_the_nth_latest_has_left_the_window() -> None:
    tasks = [created().evolve(created_at=at(seconds)) for seconds in (30, 0, 20, 10)]
    quota = Quota(created=3, window=timedelta(seconds=60))
    with pytest.raises(QuotaExceeded) as full:
        quota.check(tasks, at(40))
    assert full.value.retry_after == timedelta(seconds=30)
    quota.check(tasks, at(70))


def test_a_quota_without_a_limit_refuses_nothing() -> None:
    Quota().check([created()] * 1_000, at(0))
    assert Quota() == Quota(live=None, created=None, window=timedelta(seconds=60))
    Quota(live=1, created=1).check([], at(0))


@given(st.timedeltas(timedelta(microseconds=1), MAX_WINDOW), st.timedeltas(-MAX_WINDOW, MAX_WINDOW))
def test_a_creation_succeeds_after_the_reported_wait(window: timedelta, ago: timedelta) -> None:
    quota, nth_latest = Quota(created=1, window=window), at(0) - ago
    try:
        quota.check_created(nth_latest, at(0))
    except QuotaExceeded as full:
        wait = full.retry_after
    else:
        wait = timedelta(0)
    assert wait is not None
    quota.check_created(nth_latest, at(0) + wait)


def test_without_a_quota_every_creation_is_allowed() -> None:
    Quota().check_live(10**9)
    Quota().check_created(at(0), at(0))
    Quota(created=1).check_live(10**9)
    Quota(live=1).check_created(at(0), at(0))


BAD: list[tuple[dict[str, Any], str]] = [
    ({"live": 0}, "a quota of 0 live tasks allows no task: set it to at least 1"),
    ({"live": -1}, "a quota of -1 live tasks"),
    ({"created": 0}, "a quota of 0 created tasks allows no task"),
    ({"window": timedelta(0)}, "a quota's window must be at most 366 days"),
    ({"window": timedelta(microseconds=-1)}, "a quota's window must be"),
    ({"window": MAX_WINDOW + timedelta(microseconds=1)}, "a quota's window must be at most 366 days"),
    ({"window": timedelta.max}, "a quota's window must be"),
]


@pytest.mark.parametrize(("fields", "message"), BAD, ids=[str(fields) for fields, _ in BAD])
def test_an_invalid_quota_is_refused_when_it_is_created(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Quota(**fields)


def test_a_quota_at_the_edge_of_its_limits_is_accepted() -> None:
    for window in (timedelta(microseconds=1), MAX_WINDOW):
        assert Quota(live=1, created=1, window=window).window == window


def test_the_documented_limits_are_the_enforced_ones() -> None:
    kib, mib = 1_024, 1_024 * 1_024
    assert Limits() == Limits(
        arguments=mib,
        outcome=8 * mib,
        caller=64 * kib,
        step=mib,
        question=64 * kib,
        answer=256 * kib,
        variables=64 * kib,
        artifact=8 * mib,
        open_inputs=100,
        notes=10_000,
    )
