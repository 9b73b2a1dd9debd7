"""What handles tell each other, and what time it is on the database's clock."""

from datetime import UTC, datetime, timedelta

import pytest

from raincheck.core.records import TaskId
from raincheck.stores.change_feed import ANY_TASK
from raincheck.stores.postgres.connection import DatabaseClock
from raincheck.stores.postgres.notifications import MAX_MESSAGE_BYTES, decode_changes, encode_changes

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_what_is_told_is_heard() -> None:
    ids = [TaskId("one"), TaskId("two")]
    (message,) = encode_changes("me", ids)
    assert decode_changes(message) == ("me", frozenset(ids))


def test_many_tasks_are_told_of_in_messages_that_the_database_takes() -> None:
    ids = [TaskId(f"task {number:040}") for number in range(1_000)]
    messages = list(encode_changes("me", ids))
    assert len(messages) > 1
    assert all(len(message.encode()) <= MAX_MESSAGE_BYTES for message in messages)
    assert frozenset().union(*(decode_changes(message)[1] for message in messages)) == set(ids)


@pytest.mark.parametrize("odd", ["two\nlines", "ü" * MAX_MESSAGE_BYTES])
def test_a_task_that_can_not_be_named_is_told_of_as_anything(odd: str) -> None:
    messages = list(encode_changes("me", [TaskId("one"), TaskId(odd), TaskId("two")]))
    assert all(len(message.encode()) <= MAX_MESSAGE_BYTES for message in messages)
    hints = [decode_changes(message)[1] for message in messages]
    assert ANY_TASK in hints
    assert frozenset().union(*hints) == {"one", "two"}


class Watch(DatabaseClock):
    """Whose seconds go when told."""

    seconds = 100.0

    def monotonic(self) -> float:
        return self.seconds


def test_the_time_goes_on_between_two_looks() -> None:
    clock = Watch()
    clock.add_reading(NOON, 100.0, 100.0)
    clock.seconds += 5
    assert clock.now() == NOON + timedelta(seconds=5)


def test_a_reading_is_taken_for_the_middle_of_the_time_that_it_took() -> None:
    clock = Watch()
    clock.add_reading(NOON, 98.0, 100.0)
    assert clock.now() == NOON + timedelta(seconds=1)


def test_a_reading_that_took_long_does_not_replace_one_that_was_quick() -> None:
    clock = Watch()
    clock.add_reading(NOON, 100.0, 100.001)
    clock.seconds = 110.0
    clock.add_reading(NOON + timedelta(seconds=9), 105.0, 110.0)
    assert abs(clock.now() - (NOON + timedelta(seconds=10))) < timedelta(seconds=0.01)


def test_a_reading_that_proves_the_last_one_wrong_replaces_it_however_long_it_took() -> None:
    clock = Watch()
    clock.add_reading(NOON, 100.0, 100.0004)
    # The machine slept for an hour: its seconds stood still.
    clock.seconds = 101.0
    clock.add_reading(NOON + timedelta(hours=1), 100.9, 101.0)
    assert abs(clock.now() - (NOON + timedelta(hours=1))) < timedelta(seconds=0.1)


def test_an_old_reading_is_replaced_by_a_slower_one_in_the_end() -> None:
    clock = Watch()
    clock.add_reading(NOON, 100.0, 100.001)
    clock.seconds = 10_000.0
    clock.add_reading(NOON + timedelta(hours=5), 9_999.0, 10_000.0)
    assert abs(clock.now() - (NOON + timedelta(hours=5))) < timedelta(seconds=1)


def test_before_the_first_look_it_is_this_machines_time() -> None:
    assert DatabaseClock().now().tzinfo is UTC
