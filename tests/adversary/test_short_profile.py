"""Every attack, for a short time and always with the same choices."""

import asyncio
import random

import pytest

from tests.adversary.__main__ import ATTACKS

SECONDS = 10.0
"""Of each attack, besides starting and ending what it attacks."""


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_an_attack_finds_no_violation(name: str) -> None:
    attack, _ = ATTACKS[name]
    outcome = asyncio.run(attack(random.Random(f"short {name}"), SECONDS))
    assert outcome.violations == []
    assert outcome.counts
