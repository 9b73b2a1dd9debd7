"""Run many seeds of the simulation, and print what they found."""

import argparse
import sys
import time

from tests.simulation.bugs import BUGS, planted
from tests.simulation.run import RunResult, run_seed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000, help="how many seeds to run")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--bug", choices=sorted(BUGS), help="plant a bug, and stop at the first seed that finds it")
    options = parser.parse_args()
    started, states, results = time.process_time(), set[int](), list[RunResult]()
    for seed in range(options.start, options.start + options.seeds):
        with planted(options.bug):
            result = run_seed(seed)
        results.append(result)
        states |= result.states
        for violation in result.violations:
            print(f"seed {seed}: {violation}", flush=True)
        if options.bug and result.violations:
            break
    found = [result.seed for result in results if result.violations]
    print(
        f"{len(results):,} seeds, {len(states):,} distinct states, "
        f"{sum(result.commits for result in results):,} commits, {sum(result.bodies for result in results):,} bodies, "
        f"{sum(result.crashes for result in results):,} crashes, {sum(result.seconds for result in results):,.0f} "
        f"simulated seconds, {time.process_time() - started:.0f} s of CPU, {len(found)} seeds with violations {found}"
    )
    if found and not options.bug:
        print(f"repeat one: python -m tests.simulation --seeds 1 --start {found[0]}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
