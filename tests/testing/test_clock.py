"""The fake clock moves only when it is advanced, and the pytest plugin provides it as a fixture."""

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

import raincheck.testing
from raincheck.clock import Clock
from raincheck.testing import FakeClock

pytest_plugins = ["pytester"]


def test_the_clock_stands_still_until_it_is_moved() -> None:
    clock: Clock = FakeClock()
    assert clock.now() == clock.now() == datetime(2026, 1, 1, tzinfo=UTC)


def test_advance_moves_the_clock_and_returns_the_new_time() -> None:
    clock = FakeClock(datetime(2026, 5, 1, tzinfo=UTC))
    assert clock.advance(90.5) == clock.now() == datetime(2026, 5, 1, 0, 1, 30, 500_000, tzinfo=UTC)


def test_the_clock_can_move_backwards() -> None:
    clock = FakeClock()
    start = clock.now()
    assert clock.advance(-1) == start - timedelta(seconds=1)


def test_jump_to_sets_the_clock() -> None:
    clock = FakeClock()
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    assert clock.jump_to(moment) == clock.now() == moment


def test_clocks_are_independent() -> None:
    one, other = FakeClock(), FakeClock()
    one.advance(1)
    assert other.now() == datetime(2026, 1, 1, tzinfo=UTC)


async def start_sleepers(clock: FakeClock, *seconds: float) -> list[asyncio.Task[None]]:
    """Start one background task per number of seconds, and return them once all of them sleep."""
    sleepers = [asyncio.create_task(clock.sleep(duration)) for duration in seconds]
    await asyncio.sleep(0)
    return sleepers


@pytest.mark.anyio
async def test_a_sleeper_wakes_once_the_clock_has_moved_by_its_seconds() -> None:
    clock = FakeClock()
    short, long = await start_sleepers(clock, 10, 20)
    clock.advance(9.999)
    await asyncio.sleep(0)
    assert not short.done()
    clock.advance(0.001)
    await asyncio.wait_for(short, 20)
    assert not long.done()
    clock.jump_to(clock.now() + timedelta(days=1))
    await asyncio.wait_for(long, 20)


@pytest.mark.anyio
async def test_a_sleep_counts_from_the_call_even_if_it_is_awaited_later() -> None:
    clock = FakeClock()
    sleeping = clock.sleep(10)
    clock.advance(10)
    await asyncio.wait_for(sleeping, 20)


@pytest.mark.anyio
@pytest.mark.parametrize("seconds", [0, -1])
async def test_a_sleep_of_no_time_yields_once_and_returns(seconds: float) -> None:
    clock, ran = FakeClock(), list[str]()

    async def other() -> None:
        ran.append("other")

    background_task = asyncio.create_task(other())
    await asyncio.wait_for(clock.sleep(seconds), 20)
    assert ran == ["other"]
    await background_task


@pytest.mark.anyio
async def test_moving_the_clock_backwards_makes_sleepers_sleep_longer() -> None:
    clock = FakeClock()
    (sleeper,) = await start_sleepers(clock, 10)
    clock.advance(-100)
    clock.advance(100)
    await asyncio.sleep(0)
    assert not sleeper.done()
    clock.advance(10)
    await asyncio.wait_for(sleeper, 20)


@pytest.mark.anyio
async def test_a_cancelled_sleeper_is_removed() -> None:
    clock = FakeClock()
    (sleeper,) = await start_sleepers(clock, 10)
    sleeper.cancel()
    await asyncio.wait([sleeper])
    clock.advance(10)
    assert not vars(clock)["_sleepers"]


def test_the_plugin_provides_a_new_clock_for_every_test(fake_clock: FakeClock) -> None:
    assert type(fake_clock) is FakeClock
    assert fake_clock.now() == FakeClock().now()


def test_the_fixture_is_available_wherever_raincheck_is_installed(pytester: pytest.Pytester) -> None:
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
def test_the_plugin_does_not_import_the_testing_extra() -> None:
    # Pytest loads it wherever raincheck is installed, with or without the testing extra.
    script = """
import sys
for missing in ("anyio", "hypothesis"):
    sys.modules[missing] = None
import raincheck.testing.plugin
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "raincheck.testing.state_machine", raising=False)
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(
        ModuleNotFoundError, match=r"needs 'hypothesis': install it with pip install 'raincheck\[testing\]'"
    ):
        vars(raincheck.testing)["__getattr__"]("StoreMachine")


def test_an_unknown_name_raises_an_attribute_error() -> None:
    assert not hasattr(raincheck.testing, "StoreContact")
