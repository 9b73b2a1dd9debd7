"""The clock that tells the time, and ids that nobody can guess."""

import re
from datetime import UTC, datetime, timedelta

from raincheck.clock import Clock, SystemClock, new_task_id
from raincheck.core.text import check_name


def test_the_clock_of_this_machine_tells_the_time_in_utc() -> None:
    clock: Clock = SystemClock()
    before, now = datetime.now(UTC), clock.now()  # noqa: TID251 - what it is compared with
    assert now.tzinfo is UTC
    assert timedelta(0) <= now - before < timedelta(minutes=1)


def test_an_id_has_128_random_bits_in_characters_that_are_safe_everywhere() -> None:
    ids = {new_task_id() for _ in range(1_000)}
    assert len(ids) == 1_000
    for task_id in ids:
        assert re.fullmatch(r"[0-9a-f]{32}", task_id)
        check_name(task_id, what="a task's id")


def test_every_part_of_an_id_is_left_to_chance() -> None:
    ids = [new_task_id() for _ in range(1_000)]
    for position in range(32):
        assert len({task_id[position] for task_id in ids}) == 16
