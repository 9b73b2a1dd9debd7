"""The system clock, and unguessable task ids."""

import re
from datetime import UTC, datetime, timedelta

from raincheck.clock import Clock, SystemClock, new_task_id
from raincheck.core.values import check_name


def test_the_system_clock_is_in_utc() -> None:
    clock: Clock = SystemClock()
    before, now = datetime.now(UTC), clock.now()  # noqa: TID251 - for comparison
    assert now.tzinfo is UTC
    assert timedelta(0) <= now - before < timedelta(minutes=1)


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_an_id_has_128_random_bits_in_characters_that_are_safe_everywhere() -> None:
    ids = {new_task_id(NOW) for _ in range(1_000)}
    assert len(ids) == 1_000
    for task_id in ids:
        assert re.fullmatch(r"[0-9a-f]{44}", task_id)
        check_name(task_id, what="a task's id")


def test_every_part_of_an_id_except_its_time_is_random() -> None:
    ids = [new_task_id(NOW) for _ in range(1_000)]
    assert {task_id[:12] for task_id in ids} == {f"{int(NOW.timestamp() * 1_000):012x}"}
    for position in range(12, 44):
        assert len({task_id[position] for task_id in ids}) == 16


def test_later_ids_sort_after_earlier_ones() -> None:
    moments = [NOW - timedelta(days=9_000), NOW, NOW + timedelta(milliseconds=1), NOW + timedelta(days=90_000)]
    ids = [new_task_id(moment) for moment in moments]
    assert ids == sorted(ids)
