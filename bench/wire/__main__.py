"""The command: `python -m bench.wire [--quick] [--only NAME ...] [--json FILE] [--write]` prints a table."""

import argparse
import asyncio
import json
import platform
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from bench.figure import table
from bench.machine import machine
from bench.progress import Progress
from bench.wire import page
from bench.wire.measure import FULL, QUICK, measure
from bench.wire.servers import SDK

RESULTS = Path(__file__).parents[1] / "results"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.wire", description="What callers see, over HTTP.")
    parser.add_argument("--quick", action="store_true", help="less of it, once")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="servers, as the table names them")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--write", action="store_true", help="keep the figures, and write them into the page")
    options = parser.parse_args()
    only = None if options.only is None else frozenset([*options.only, SDK])
    extent = replace(QUICK if options.quick else FULL, servers=only)
    progress = Progress()
    RESULTS.mkdir(exist_ok=True)
    # Beside the results and not in the system's temporary folder, which may be in memory, where syncing is free.
    with tempfile.TemporaryDirectory(prefix="run-", dir=RESULTS) as folder:
        cells = asyncio.run(measure(Path(folder), extent, progress))
    progress.end()
    print(table([cell.figure for cell in cells]))
    if options.json is not None:
        content = json.dumps([asdict(cell) for cell in cells], indent=2)
        options.json.write_text(content + "\n", encoding="utf-8")
    if options.write:
        page.save(machine(platform.system()), cells)
        where, kept = page.load()
        text = page.PAGE.read_text(encoding="utf-8")
        page.PAGE.write_text(page.fill(text, where, kept), encoding="utf-8")


if __name__ == "__main__":
    main()
