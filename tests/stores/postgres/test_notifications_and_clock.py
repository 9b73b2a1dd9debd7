"""Notifications between handles, and the estimate of the database's clock."""

from datetime import UTC, datetime, timedelta

import pytest

from raincheck.core.records import TaskId
from raincheck.stores.change_feed import ANY_TASK
from raincheck.stores.postgres.connection import DatabaseClock
from raincheck.stores.postgres.notifications import MAX_MESSAGE_BYTES, decode_changes, encode_changes

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_encoded_changes_are_decoded_unchanged() -> None:
    ids = [TaskId("one"), TaskId("two")]
    (message,) = encode_changes("me", ids)
    assert decode_changes(message) == ("me", frozenset(ids))


def test_many_tasks_are_split_into_messages_within_the_size_limit() -> None:
    ids = [TaskId(f"task {number:040}") for number in range(1_000)]
    messages = list(encode_changes("me", ids))
    assert len(messages) > 1
    assert all(len(message.encode()) <= MAX_MESSAGE_BYTES for message in messages)
    assert frozenset().union(*(decode_changes(message)[1] for message in messages)) == set(ids)


@pytest.mark.parametrize("odd", ["two\nlines", "ü" * MAX_MESSAGE_BYTES])
def test_a_task_that_can_not_be_named_is_announced_as_any_task(odd: str) -> None:
    messages = list(encode_changes("me", [TaskId("one"), TaskId(odd), TaskId("two")]))
    assert all(len(message.encode()) <= MAX_MESSAGE_BYTES for message in messages)
    hints = [decode_changes(message)[1] for message in messages]
    assert ANY_TASK in hints
    assert frozenset().union(*hints) == {"one", "two"}


class ManualClock(DatabaseClock):
    """A clock whose seconds advance on demand."""

    seconds = 100.0

    def monotonic(self) -> float:
        return self.seconds


def test_the_time_advances_between_two_readings() -> None:
    clock = ManualClock()
    clock.add_reading(NOON, 100.0, 100.0)
    clock.seconds += 5
    assert clock.now() == NOON + timedelta(seconds=5)


def test_a_reading_is_assigned_to_the_middle_of_its_round_trip() -> None:
    clock = ManualClock()
    clock.add_reading(NOON, 98.0, 100.0)
    assert clock.now() == NOON + timedelta(seconds=1)


def test_a_slow_reading_does_not_replace_a_quick_one() -> None:
    clock = ManualClock()
    clock.add_reading(NOON, 100.0, 100.001)
    clock.seconds = 110.0
    clock.add_reading(NOON + timedelta(seconds=9), 105.0, 110.0)
    assert abs(clock.now() - (NOON + timedelta(seconds=10))) < timedelta(seconds=0.01)


def test_a_reading_that_contradicts_the_current_one_replaces_it_even_if_slow() -> None:
    clock = ManualClock()
    clock.add_reading(NOON, 100.0, 100.0004)
    # The machine slept for an hour: its seconds stood still.
    clock.seconds = 101.0
    clock.add_reading(NOON + timedelta(hours=1), 100.9, 101.0)
    assert abs(clock.now() - (NOON + timedelta(hours=1))) < timedelta(seconds=0.1)


def test_an_old_reading_is_eventually_replaced_by_a_slower_one() -> None:
    clock = ManualClock()
    clock.add_reading(NOON, 100.0, 100.001)
    clock.seconds = 10_000.0
    clock.add_reading(NOON + timedelta(hours=5), 9_999.0, 10_000.0)
    assert abs(clock.now() - (NOON + timedelta(hours=5))) < timedelta(seconds=1)


def test_before_the_first_reading_the_machines_time_is_used() -> None:
    assert DatabaseClock().now().tzinfo is UTC
