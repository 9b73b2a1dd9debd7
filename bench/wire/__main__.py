"""The command: `python -m bench.wire [--quick] [--only NAME ...] [--json FILE]` prints a table."""

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

from bench.figure import table
from bench.progress import Progress
from bench.wire.measure import Extent, measure
from bench.wire.servers import SDK

RESULTS = Path(__file__).parents[1] / "results"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.wire", description="What callers see, over HTTP.")
    parser.add_argument("--quick", action="store_true", help="16 callers at once, and one round")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="servers, as the table names them")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    only = None if options.only is None else frozenset([*options.only, SDK])
    extent = Extent(1, 0.3, 200, (16,), only) if options.quick else Extent(3, 0.5, 1_000, (16, 1, 64), only)
    progress = Progress()
    RESULTS.mkdir(exist_ok=True)
    # Beside the results and not in the system's temporary folder, which may be in memory, where syncing is free.
    with tempfile.TemporaryDirectory(prefix="run-", dir=RESULTS) as folder:
        figures, missing = asyncio.run(measure(Path(folder), extent, progress))
    progress.end()
    for line in missing:
        print(f"bench: NOT MEASURED: {line}", file=sys.stderr)
    print(table(figures))
    if options.json is not None:
        options.json.write_text(json.dumps([figure.as_json() for figure in figures], indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
