"""Run attacks, one after the other, each for a share of the time."""

import argparse
import asyncio
import random
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from tests.adversary.chaos import attack as chaos
from tests.adversary.fuzz import attack as fuzz
from tests.adversary.outcome import Outcome
from tests.adversary.resources import attack as resources

Attack = Callable[[random.Random, float], Coroutine[Any, Any, Outcome]]
"""Attacks for this many seconds, with everything random drawn from the generator."""

ATTACKS: Mapping[str, tuple[Attack, float]] = {
    "chaos": (chaos.run, 3.0),
    "fuzz": (fuzz.run, 4),
    "resources": (resources.run, 2),
}
"""Attacks by name, each with its share of the time."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/adversary", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long all attacks take together")
    parser.add_argument("--seed", type=int, default=None, help="repeats the choices of an earlier run")
    parser.add_argument("--only", choices=sorted(ATTACKS), help="run one attack")
    options = parser.parse_args()
    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    print(f"seed {seed}")
    chosen = {name: attack for name, attack in ATTACKS.items() if options.only in (None, name)}
    total = sum(share for _, share in chosen.values())
    is_clean = True
    for name, (attack, share) in chosen.items():
        outcome = asyncio.run(attack(random.Random(f"{seed} {name}"), options.minutes * 60 * share / total))
        counted = ", ".join(f"{count:,} {what}" for what, count in sorted(outcome.counts.items()))
        print(f"{name}: {counted}; {len(outcome.violations)} violations", flush=True)
        for violation in outcome.violations:
            print(f"  {violation}")
        is_clean = is_clean and not outcome.violations
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
