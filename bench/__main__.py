"""The command: `scripts/bench [--quick] [--only SECTION …] [--servers NAME …] [--strict] [--json FILE] [--write]`."""

import argparse
import asyncio
import os
import platform
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench import growth, page
from bench.figure import Figure, table
from bench.machine import machine
from bench.plots import plot
from bench.progress import Progress
from bench.results import FOLDER, PUBLISHED, Results
from bench.sections import FULL, QUICK, SECTIONS, Run, Scale
from bench.wire.peers import known_names, peers, redis_program
from raincheck.clock import SystemClock


async def measure(scale: Scale, only: Sequence[str]) -> list[Figure]:
    progress = Progress()
    # Not in the system's temporary folder, which may be in memory, where syncing is free.
    with tempfile.TemporaryDirectory(prefix="run-", dir=FOLDER) as folder:
        run = Run(scale, Path(folder), progress)
        figures = [await section(run) for name, section in SECTIONS.items() if name in only]
    progress.end()
    return [figure for section_figures in figures for figure in section_figures]


def load_warning() -> str | None:
    """Return a warning if other programs use this machine so much that its figures are rough."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load <= cores / 2:
        return None
    return (
        f"bench: this machine is busy (load {load:.1f} on {cores} cores): expect rough figures, and check their spread"
    )


def report(scale: Scale, results: Results) -> str:
    missed, bounds = results.missed, results.bounds
    summary = f"{missed} of {bounds} bounds MISSED" if missed else f"all {bounds} bounds met"
    head = f"raincheck bench, {scale.name} (many = {scale.many:,} tasks, few = {growth.FEW:,}; {results.machine})"
    legend = "ratio: the median of the ratios of the rounds. spread: the lowest and the highest of them."
    return "\n".join([head, "", table(results.figures), "", legend, summary])


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measure what raincheck promises about speed.")
    parser.add_argument("--quick", action="store_true", help="measure less, in a minute and a half")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument(
        "--servers",
        nargs="+",
        choices=known_names(),
        metavar="NAME",
        help="servers of the section wire, by the names in its table",
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a bound is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    parser.add_argument("--write", action="store_true", help="update docs/reference/performance.md")
    options = parser.parse_args(arguments)
    if options.write and (options.quick or options.only or options.servers):
        parser.error("--write is for a whole run: leave out --quick, --only and --servers")
    if options.servers and options.only and "wire" not in options.only:
        parser.error("--servers is for the section wire: name it, or leave out --only")
    if options.json is not None and (options.json.is_dir() or not options.json.absolute().parent.is_dir()):
        parser.error(f"--json takes a file in an existing folder, not {options.json}")
    if options.write and (missing := peers(0 if redis_program() else None)[1]):
        parser.error(f"--write is for a whole run, and not all servers can be measured here: {'; '.join(missing)}")
    return options


def main() -> int:
    options = options_of()
    # Terminate like an interrupt, so that servers and databases are stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    scale = QUICK if options.quick else FULL
    if options.servers:
        scale = replace(scale, wire=replace(scale.wire, servers=frozenset(options.servers)))
    if warning := load_warning():
        print(warning, file=sys.stderr)
    FOLDER.mkdir(exist_ok=True)
    figures = asyncio.run(measure(scale, options.only or [*SECTIONS]))
    environment = machine(platform.system(), f"SQLite {sqlite3.sqlite_version}")
    results = Results(SystemClock().now().isoformat(timespec="minutes"), scale.name, environment, figures)
    print(report(scale, results))
    # A partial run does not replace the results of a whole one.
    name = f"{scale.name}-part" if options.only or options.servers else scale.name
    written = [FOLDER / f"{name}.json", *([] if options.json is None else [options.json])]
    for path in written:
        results.save(path)
    written += plot(figures, FOLDER, name)
    if options.write:
        results.save(PUBLISHED)
        # Loaded again, so that the page has the rounded figures of the file.
        written += [PUBLISHED, *page.write(Results.load(PUBLISHED))]
    print("written:", *(os.path.relpath(path) for path in written))
    return int(options.strict and results.missed > 0)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("bench: interrupted, no results written", file=sys.stderr)
        sys.exit(130)
