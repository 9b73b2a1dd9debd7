"""The simulation finds no violation, finds planted bugs, and repeats itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.bugs import BUGS, planted
from tests.simulation.run import run_seed

SEEDS = 120

# Found with `python -m tests.simulation --bug NAME`, and chosen among those that find it: the promise is the one that
# the bug breaks.
FOUND_BY = {
    "fence": (35, "one truth: attempt 2 of"),
    "lease": (18, "extended a lease after"),
    "answer": (0, "does not end"),
    "child": (3, "does not end"),
    "expiry": (8, "a waiter learns"),
    "variables": (18, "sees None there"),
}

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("part", range(4))
def test_no_promise_is_broken(part: int) -> None:
    violations = {seed: run_seed(seed).violations for seed in range(part, SEEDS, 4)}
    assert {seed: found for seed, found in violations.items() if found} == {}


def test_a_seed_repeats_everything() -> None:
    for seed in (1, 35):
        first, second = run_seed(seed), run_seed(seed)
        assert first == second
        assert first.commits > 0


def test_different_seeds_differ() -> None:
    assert len({run_seed(seed).trace for seed in range(5)}) == 5


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_a_seed_repeats_everything_in_another_process(hash_seed: str) -> None:
    code = "from tests.simulation.run import run_seed; print(run_seed(35).trace)"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert int(run.stdout) == run_seed(35).trace


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    seed, expected = FOUND_BY[bug]
    with planted(bug):
        violations = run_seed(seed).violations
    assert any(expected in violation for violation in violations)
    assert run_seed(seed).violations == []
