"""The clock that goes when told, and the fixture that hands it out."""

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

import raincheck.testing
from raincheck.clock import Clock
from raincheck.testing import FakeClock

pytest_plugins = ["pytester"]


def test_it_stands_still_until_it_is_moved() -> None:
    clock: Clock = FakeClock()
    assert clock.now() == clock.now() == datetime(2026, 1, 1, tzinfo=UTC)


def test_it_moves_by_as_much_as_it_is_told_and_says_what_time_it_is_then() -> None:
    clock = FakeClock(datetime(2026, 5, 1, tzinfo=UTC))
    assert clock.advance(90.5) == clock.now() == datetime(2026, 5, 1, 0, 1, 30, 500_000, tzinfo=UTC)


def test_it_may_go_backwards_as_real_clocks_do() -> None:
    clock = FakeClock()
    start = clock.now()
    assert clock.advance(-1) == start - timedelta(seconds=1)


def test_it_jumps_to_a_moment() -> None:
    clock = FakeClock()
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    assert clock.jump_to(moment) == clock.now() == moment


def test_two_clocks_are_two_clocks() -> None:
    one, other = FakeClock(), FakeClock()
    one.advance(1)
    assert other.now() == datetime(2026, 1, 1, tzinfo=UTC)


async def asleep(clock: FakeClock, *seconds: float) -> list[asyncio.Task[None]]:
    """Jobs that sleep for so long, and have gone to sleep."""
    jobs = [asyncio.create_task(clock.sleep(one)) for one in seconds]
    await asyncio.sleep(0)
    return jobs


@pytest.mark.anyio
async def test_whoever_sleeps_on_it_wakes_when_it_was_moved_by_that_much_and_not_before() -> None:
    clock = FakeClock()
    short, long = await asleep(clock, 10, 20)
    clock.advance(9.999)
    await asyncio.sleep(0)
    assert not short.done()
    clock.advance(0.001)
    await asyncio.wait_for(short, 20)
    assert not long.done()
    clock.jump_to(clock.now() + timedelta(days=1))
    await asyncio.wait_for(long, 20)


@pytest.mark.anyio
async def test_a_sleep_counts_from_when_it_was_asked_for_also_if_it_is_awaited_later() -> None:
    clock = FakeClock()
    sleeping = clock.sleep(10)
    clock.advance(10)
    await asyncio.wait_for(sleeping, 20)


@pytest.mark.anyio
@pytest.mark.parametrize("seconds", [0, -1])
async def test_a_sleep_for_no_time_lets_others_run_and_returns(seconds: float) -> None:
    clock, ran = FakeClock(), list[str]()

    async def other() -> None:
        ran.append("other")

    job = asyncio.create_task(other())
    await asyncio.wait_for(clock.sleep(seconds), 20)
    assert ran == ["other"]
    await job


@pytest.mark.anyio
async def test_a_clock_that_goes_backwards_wakes_nobody_and_makes_them_sleep_longer() -> None:
    clock = FakeClock()
    (job,) = await asleep(clock, 10)
    clock.advance(-100)
    clock.advance(100)
    await asyncio.sleep(0)
    assert not job.done()
    clock.advance(10)
    await asyncio.wait_for(job, 20)


@pytest.mark.anyio
async def test_a_sleeper_who_is_cancelled_is_forgotten() -> None:
    clock = FakeClock()
    (job,) = await asleep(clock, 10)
    job.cancel()
    await asyncio.wait([job])
    clock.advance(10)
    assert not vars(clock)["_sleepers"]


def test_the_plugin_hands_out_a_new_clock_to_every_test(fake_clock: FakeClock) -> None:
    assert type(fake_clock) is FakeClock
    assert fake_clock.now() == FakeClock().now()


def test_whoever_has_raincheck_installed_has_the_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_one(fake_clock):
            assert fake_clock.advance(1).second == 1

        def test_another(fake_clock):
            assert fake_clock.now().second == 0
        """
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=2)


@pytest.mark.cold
def test_the_plugin_does_not_load_what_a_test_run_may_do_without() -> None:
    # It is loaded into every test run of whoever has raincheck installed, with the extra for tests or without.
    script = """
import sys
for missing in ("anyio", "hypothesis"):
    sys.modules[missing] = None
import raincheck.testing.plugin
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "raincheck.testing.state_machine", raising=False)
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(
        ModuleNotFoundError, match=r"needs 'hypothesis': install it with pip install 'raincheck\[testing\]'"
    ):
        vars(raincheck.testing)["__getattr__"]("StoreMachine")


def test_a_name_that_the_kit_does_not_have_is_an_ordinary_mistake() -> None:
    assert not hasattr(raincheck.testing, "StoreContact")
