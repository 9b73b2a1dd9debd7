"""The system clock, and unguessable task ids."""

import re
from datetime import UTC, datetime, timedelta

from raincheck.clock import Clock, SteadyClock, SystemClock, new_task_id
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


class ScriptedMachine:
    """The two clocks of a machine, which a test moves."""

    def __init__(self) -> None:
        self.time = NOW
        self.elapsed = 0.0

    def clock(self) -> SteadyClock:
        class MachineClock(SteadyClock):
            monotonic = staticmethod(lambda: self.elapsed)

        return MachineClock(lambda: self.time)

    def run_for(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)
        self.elapsed += seconds

    def set_time(self, seconds: float) -> None:
        """Set the clock forward or back."""
        self.time += timedelta(seconds=seconds)


def test_a_steady_clock_shows_the_time_of_a_machine_whose_clock_is_not_set_back() -> None:
    machine = ScriptedMachine()
    clock = machine.clock()
    machine.run_for(10)
    assert clock.now() == machine.time
    # The machine slept, or its clock was corrected.
    machine.set_time(3_600)
    assert clock.now() == machine.time


def test_a_steady_clock_continues_when_the_machine_is_set_back() -> None:
    machine = ScriptedMachine()
    clock = machine.clock()
    machine.run_for(10)
    machine.set_time(-3_600)
    assert clock.now() == NOW + timedelta(seconds=10)
    machine.run_for(5)
    assert clock.now() == NOW + timedelta(seconds=15)
    # Once the machine's clock is right again, so is this one.
    machine.set_time(3_600)
    machine.run_for(1)
    assert clock.now() == machine.time == NOW + timedelta(seconds=16)


def test_a_steady_clock_stands_still_during_a_small_correction() -> None:
    machine = ScriptedMachine()
    clock = machine.clock()
    machine.run_for(10)
    before = clock.now()
    machine.set_time(-0.5)
    assert clock.now() == before
    machine.run_for(0.75)
    assert clock.now() == before + timedelta(seconds=0.25) == machine.time


def test_a_steady_clock_continues_from_a_moment_that_has_passed_elsewhere() -> None:
    machine = ScriptedMachine()
    clock = machine.clock()
    clock.continue_from(NOW - timedelta(days=1))
    assert clock.now() == NOW
    clock.continue_from(NOW + timedelta(hours=1))
    assert clock.ahead == timedelta(hours=1)
    machine.run_for(2)
    assert clock.now() == NOW + timedelta(hours=1, seconds=2)
    # Opened again, with a moment of its own.
    clock.continue_from(NOW + timedelta(hours=1, seconds=2))
    assert clock.ahead == timedelta(hours=1)
