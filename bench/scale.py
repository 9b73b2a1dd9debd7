"""Estimate what millions of tasks need: `python -m bench.scale [--tasks 5M] [--polls 2000] [--measure] [--json]`.

The cost of each operation is measured on this machine. `scale_model.py` computes the rest, such as the limit that a
growing load reaches first.
"""

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, cast

from bench.markdown import fill_parts, markdown
from bench.progress import Progress
from bench.scale_model import BUSY, Cost, Costs, Load, Machine, Needs, Operation, first_wall, needs

FOLDER = Path(__file__).parent
MEASURED = FOLDER / "scale_costs.json"
PAGE = FOLDER.parent / "docs" / "reference" / "sizing.md"
TASKS = 600
"""The number of tasks of a measurement."""

LOADS = {
    "a team": Load(live=10_000, polls=20),
    "a company": Load(live=100_000, polls=200),
    "a million": Load(live=1_000_000, polls=2_000),
    "five million": Load(live=5_000_000, polls=2_000),
    "five million, quicker": Load(live=5_000_000, polls=2_000, lifetime=6 * 3_600),
    "many polls": Load(live=1_000_000, polls=20_000),
    "short tasks": Load(live=3_000, polls=1_000, lifetime=30, busy=5, steps=0, answers=0),
}
"""The examples on the page."""


def load_costs(path: Path = MEASURED) -> Costs:
    """Load costs from a file."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    operations = {name: Cost(**cost) for name, cost in content.pop("operations").items()}
    return Costs(operations=cast("dict[Operation, Cost]", operations), **content)


def save_costs(costs: Costs, path: Path = MEASURED) -> None:
    path.write_text(json.dumps(_rounded(asdict(costs)), indent=2) + "\n", encoding="utf-8")


def _rounded(value: object) -> object:
    """Round to three significant digits, since the others change with every measurement."""
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in cast("dict[str, object]", value).items()}
    return float(f"{value:.3g}") if isinstance(value, float) else value


def amount(text: str) -> float:
    """Parse a number such as `5M`, `200k` or `30`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmM]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number: write 30, 200k or 5M")
    return float(match[1]) * {"": 1, "k": 1e3, "m": 1e6}[match[2].lower()]


def costs_table(costs: Costs) -> str:
    """Return the costs of operations as a Markdown table."""
    rows = [
        (
            f"`{name}`",
            f"{cost.database * 1e3:.2f}",
            f"{cost.process * 1e3:.2f}",
            f"{cost.commits:.2g}",
            f"{cost.notices:.2g}",
            f"{cost.wal / 1e3:.1f}",
        )
        for name, cost in costs.operations.items()
    ]
    head = ("operation", "PostgreSQL, ms of CPU", "our process, ms of CPU", "commits", "notices", "WAL, kB")
    return markdown(head, rows)


def rest_table(costs: Costs) -> str:
    """Return the other costs as a Markdown table."""
    rows = [
        ("a change that a process hears of: in that process", f"{costs.heard_process * 1e3:.2f} ms of CPU"),
        ("the same: in PostgreSQL, for each process", f"{costs.heard_database * 1e3:.3f} ms of CPU"),
        ("a process without work: itself", f"{costs.idle_process:.1%} of a core"),
        ("the same: in PostgreSQL", f"{costs.idle_database:.2%} of a core"),
        ("a live task, tables and indexes", f"{costs.live_bytes / 1e3:.1f} kB"),
        (
            "a task that has ended",
            f"{costs.kept_bytes / 1e3:.1f} kB, {costs.vacuumed_bytes / 1e3:.1f} of them in `tasks`",
        ),
        ("commits that notify", f"{costs.notified_commits:,.0f}/s"),
        ("commits that don't", f"{costs.plain_commits:,.0f}/s"),
    ]
    return markdown(("what", "measured"), rows)


def loads_table(costs: Costs) -> str:
    """Return what the examples need as a Markdown table."""
    rows: list[Sequence[str]] = []
    for name, load in LOADS.items():
        need = needs(costs, load, Machine())
        wall, room = first_wall(costs, load, Machine())
        rows.append(
            (
                name,
                f"{load.live:,.0f}",
                f"{load.created:,.1f}",
                f"{load.polls:,.0f}",
                f"{need.servers:.0f}",
                f"{need.workers:.0f}",
                f"{need.cores:.1f}",
                f"{need.commits:,.0f}",
                f"{need.notices:,.0f}",
                f"{need.wal / 1e6:.1f}",
                f"{need.disk / 1e9:,.0f}",
                f"{wall}, at {_few(room)} times this",
            )
        )
    head = ("load", "live", "new/s", "polls/s", "servers", "workers", "PG cores", "commits/s", "notices/s")
    head = (*head, "WAL, MB/s", "disk, GB", "first wall")
    return markdown(head, rows).replace(" inf ", " - ")


def _few(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def fill(page: str, costs: Costs) -> str:
    """Return the page with the figures of these costs."""
    parts = {
        "machine": lambda: f"Measured on {costs.machine}.",
        "costs": lambda: costs_table(costs),
        "rest": lambda: rest_table(costs),
        "loads": lambda: loads_table(costs),
    }
    return fill_parts(page, "scale", parts)


def report(load: Load, need: Needs, costs: Costs, wall: str, room: float) -> str:
    rows = [
        ("new tasks a second", f"{load.created:,.1f}"),
        ("server processes", f"{need.servers:.0f}"),
        ("worker processes", f"{need.workers:.0f}"),
        ("PostgreSQL cores", f"{need.cores:.1f} (at {BUSY:.0%} busy)"),
        ("commits a second", f"{need.commits:,.0f}, of which {need.notices:,.0f} notify"),
        ("WAL", f"{need.wal / 1e6:,.2f} MB/s"),
        ("tables and indexes", f"{need.disk / 1e9:,.1f} GB"),
        *((f"used: {wall}", f"{used:.0%}") for wall, used in need.used.items()),
        ("first wall", f"{wall}, at {_few(room)} times this load"),
    ]
    width = max(len(name) for name, _ in rows)
    head = f"{load.live:,.0f} live tasks, {load.polls:,.0f} polls a second (costs: {costs.machine})"
    return "\n".join([head, "", *(f"{name.ljust(width)}  {value}" for name, value in rows)])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description="Estimate what a load needs.")
    parser.add_argument("--tasks", type=amount, default=1e6, metavar="N", help="live tasks: 200k, 5M")
    parser.add_argument("--polls", type=amount, default=2e3, metavar="N", help="polls a second")
    for group, prefix in ((Load, ""), (Machine, "pg-")):
        for field in fields(group):
            if field.name not in ("live", "polls"):
                parser.add_argument(
                    f"--{prefix}{field.name}", type=amount, metavar="N", help=f"default: {field.default}"
                )
    parser.add_argument("--measure", action="store_true", help="measure the costs on this machine first (two minutes)")
    parser.add_argument("--measured", type=int, default=TASKS, metavar="N", help="number of tasks to measure with")
    parser.add_argument("--save", action="store_true", help="store the measured costs for later runs")
    parser.add_argument("--write", action="store_true", help="update the sizing page")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = vars(parser.parse_args(arguments))
    costs = _measured(options["measured"]) if options["measure"] else load_costs()
    if options["save"]:
        save_costs(costs)
        # Loaded again, so that the page has the rounded figures of the file.
        costs = load_costs()
    if options["write"]:
        PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), costs), encoding="utf-8")
    load = replace(Load(options["tasks"], options["polls"]), **_options_for(options, Load, ""))
    machine = replace(Machine(), **_options_for(options, Machine, "pg_"))
    need = needs(costs, load, machine)
    wall, room = first_wall(costs, load, machine)
    if options["json"]:
        content = {
            "load": asdict(load),
            "needs": asdict(need),
            "first_wall": wall,
            "room": room,
            "costs": asdict(costs),
        }
        print(json.dumps(content, indent=2))
    else:
        print(report(load, need, costs, wall, room))
    return 0


def _options_for(options: dict[str, Any], group: type, prefix: str) -> dict[str, Any]:
    return {
        field.name: options[f"{prefix}{field.name}"]
        for field in fields(group)
        if options.get(f"{prefix}{field.name}") is not None and field.name not in ("live", "polls")
    }


def _measured(count: int) -> Costs:
    # Imported here, since only this needs PostgreSQL.
    from bench.scale_measurement import measure

    progress = Progress()
    costs = asyncio.run(measure(count, progress))
    progress.end()
    return costs


if __name__ == "__main__":
    sys.exit(main())
