"""The command: `python -m bench.wire [--callers N]` prints a table."""

import argparse
import asyncio
import tempfile
from pathlib import Path

from bench.figure import table
from bench.progress import Progress
from bench.wire.measure import measure

RESULTS = Path(__file__).parents[1] / "results"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.wire", description="What callers see, over HTTP.")
    parser.add_argument("--callers", type=int, default=16, metavar="N", help="how many at once (16)")
    parser.add_argument("--count", type=int, default=1_000, metavar="N", help="requests in a round (1000)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="how many of them (5)")
    options = parser.parse_args()
    progress = Progress()
    RESULTS.mkdir(exist_ok=True)
    # Beside the results and not in the system's temporary folder, which may be in memory, where syncing is free.
    with tempfile.TemporaryDirectory(prefix="run-", dir=RESULTS) as folder:
        measuring = measure(
            Path(folder), count=options.count, callers=options.callers, rounds=options.rounds, progress=progress
        )
        figures = asyncio.run(measuring)
    progress.end()
    print(table(figures))


if __name__ == "__main__":
    main()
