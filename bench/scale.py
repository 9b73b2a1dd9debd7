"""What millions of tasks would need: `python -m bench.scale [--tasks 5M] [--polls 2000] [--measure] [--json]`.

Nobody has such machines at hand. So what each operation costs is measured on this one, and the rest is arithmetic
(`scale_model.py`), which says where the first wall is.
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
"""How many are measured."""

LOADS = {
    "a team": Load(live=10_000, polls=20),
    "a company": Load(live=100_000, polls=200),
    "a million": Load(live=1_000_000, polls=2_000),
    "five million": Load(live=5_000_000, polls=2_000),
    "five million, quicker": Load(live=5_000_000, polls=2_000, lifetime=6 * 3_600),
    "many polls": Load(live=1_000_000, polls=20_000),
    "short tasks": Load(live=3_000, polls=1_000, lifetime=30, busy=5, steps=0, answers=0),
}
"""The examples of the page."""


def load_costs(path: Path = MEASURED) -> Costs:
    """The costs of a file."""
    known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    operations = {name: Cost(**cost) for name, cost in known.pop("operations").items()}
    return Costs(operations=cast("dict[Operation, Cost]", operations), **known)


def save_costs(costs: Costs, path: Path = MEASURED) -> None:
    path.write_text(json.dumps(_rounded(asdict(costs)), indent=2) + "\n", encoding="utf-8")


def _rounded(value: object) -> object:
    """To three figures: what is beyond changes with every measurement."""
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in cast("dict[str, object]", value).items()}
    return float(f"{value:.3g}") if isinstance(value, float) else value


def amount(text: str) -> float:
    """The number of `5M`, `200k` or `30`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmM]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no number: write 30, 200k or 5M")
    return float(match[1]) * {"": 1, "k": 1e3, "m": 1e6}[match[2].lower()]


def costs_table(costs: Costs) -> str:
    """What was measured, as Markdown."""
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
    """What is not of one operation, as Markdown."""
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
    """What the examples need, as Markdown."""
    rows: list[Sequence[str]] = []
    for name, load in LOADS.items():
        it = needs(costs, load, Machine())
        wall, room = first_wall(costs, load, Machine())
        rows.append(
            (
                name,
                f"{load.live:,.0f}",
                f"{load.created:,.1f}",
                f"{load.polls:,.0f}",
                f"{it.servers:.0f}",
                f"{it.workers:.0f}",
                f"{it.cores:.1f}",
                f"{it.commits:,.0f}",
                f"{it.notices:,.0f}",
                f"{it.wal / 1e6:.1f}",
                f"{it.disk / 1e9:,.0f}",
                f"{wall}, at {_few(room)} times this",
            )
        )
    head = ("load", "live", "new/s", "polls/s", "servers", "workers", "PG cores", "commits/s", "notices/s")
    head = (*head, "WAL, MB/s", "disk, GB", "first wall")
    return markdown(head, rows).replace(" inf ", " - ")


def _few(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def fill(page: str, costs: Costs) -> str:
    """The page with its figures as these costs have them."""
    parts = {
        "machine": lambda: f"Measured on {costs.machine}.",
        "costs": lambda: costs_table(costs),
        "rest": lambda: rest_table(costs),
        "loads": lambda: loads_table(costs),
    }
    return fill_parts(page, "scale", parts)


def report(load: Load, it: Needs, costs: Costs, wall: str, room: float) -> str:
    rows = [
        ("new tasks a second", f"{load.created:,.1f}"),
        ("server processes", f"{it.servers:.0f}"),
        ("worker processes", f"{it.workers:.0f}"),
        ("PostgreSQL cores", f"{it.cores:.1f} (at {BUSY:.0%} busy)"),
        ("commits a second", f"{it.commits:,.0f}, of which {it.notices:,.0f} notify"),
        ("WAL", f"{it.wal / 1e6:,.2f} MB/s"),
        ("tables and indexes", f"{it.disk / 1e9:,.1f} GB"),
        *((f"used: {wall}", f"{used:.0%}") for wall, used in it.used.items()),
        ("first wall", f"{wall}, at {_few(room)} times this load"),
    ]
    width = max(len(name) for name, _ in rows)
    head = f"{load.live:,.0f} live tasks, {load.polls:,.0f} polls a second (costs: {costs.machine})"
    return "\n".join([head, "", *(f"{name.ljust(width)}  {value}" for name, value in rows)])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description="Say what so many tasks need.")
    parser.add_argument("--tasks", type=amount, default=1e6, metavar="N", help="live tasks: 200k, 5M")
    parser.add_argument("--polls", type=amount, default=2e3, metavar="N", help="polls a second")
    for group, prefix in ((Load, ""), (Machine, "pg-")):
        for field in fields(group):
            if field.name not in ("live", "polls"):
                parser.add_argument(
                    f"--{prefix}{field.name}", type=amount, metavar="N", help=f"default: {field.default}"
                )
    parser.add_argument("--measure", action="store_true", help="measure the costs here first: about two minutes")
    parser.add_argument("--measured", type=int, default=TASKS, metavar="N", help="with so many tasks")
    parser.add_argument("--save", action="store_true", help="keep what was measured as the costs to go by")
    parser.add_argument("--write", action="store_true", help="write the figures into the page on sizing")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = vars(parser.parse_args(arguments))
    costs = _measured(options["measured"]) if options["measure"] else load_costs()
    if options["save"]:
        save_costs(costs)
        # As they were kept, so that the page says what it would say tomorrow.
        costs = load_costs()
    if options["write"]:
        PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), costs), encoding="utf-8")
    load = replace(Load(options["tasks"], options["polls"]), **_given(options, Load, ""))
    machine = replace(Machine(), **_given(options, Machine, "pg_"))
    it = needs(costs, load, machine)
    wall, room = first_wall(costs, load, machine)
    if options["json"]:
        content = {"load": asdict(load), "needs": asdict(it), "first_wall": wall, "room": room, "costs": asdict(costs)}
        print(json.dumps(content, indent=2))
    else:
        print(report(load, it, costs, wall, room))
    return 0


def _given(options: dict[str, Any], group: type, prefix: str) -> dict[str, Any]:
    return {
        field.name: options[f"{prefix}{field.name}"]
        for field in fields(group)
        if options.get(f"{prefix}{field.name}") is not None and field.name not in ("live", "polls")
    }


def _measured(count: int) -> Costs:
    # Only where it is asked for: the rest needs no PostgreSQL.
    from bench.scale_rounds import measure

    progress = Progress()
    costs = asyncio.run(measure(count, progress))
    progress.end()
    return costs


if __name__ == "__main__":
    sys.exit(main())
