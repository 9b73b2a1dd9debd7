"""The clock that goes when told, and the fixture that hands it out."""

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
    monkeypatch.delitem(sys.modules, "raincheck.testing.machine", raising=False)
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with pytest.raises(
        ModuleNotFoundError, match=r"needs 'hypothesis': install it with pip install 'raincheck\[testing\]'"
    ):
        vars(raincheck.testing)["__getattr__"]("StoreMachine")


def test_a_name_that_the_kit_does_not_have_is_an_ordinary_mistake() -> None:
    assert not hasattr(raincheck.testing, "StoreContact")
