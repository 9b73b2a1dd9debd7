"""`raincheck stats`: durations, counts and failure rates of a store's tasks.

Small plots fit into a line of text. They use block characters if the terminal supports them, else plain ones.
"""

import json
from collections.abc import Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from raincheck.cli.commands.tasks.ls import WIDE_TERMINAL
from raincheck.cli.options import JsonOption, StoreOption, open_operator_store, run_on_store
from raincheck.cli.output.results import make_console
from raincheck.clock import Clock
from raincheck.operations.describe import printable
from raincheck.operations.select import Filters, NamespaceOption, ToolOption
from raincheck.operations.serialize import format_timestamp
from raincheck.operations.statistics import HOURS, Stats, ToolStats, collect_stats
from raincheck.wire.fallback_text import format_duration

BLOCKS = " ▁▂▃▄▅▆▇█"
PLAIN = " .:-=+*#@"


def plot_characters(console: Console) -> str:
    """Return the characters to plot with, from empty to full."""
    return BLOCKS if console.is_terminal and "utf" in console.encoding.lower() else PLAIN


def sparkline(values: Sequence[float], levels: str = BLOCKS) -> str:
    """Return a column for each value, scaled to the largest. A value above zero is always visible."""
    top = max(values, default=0)
    if top <= 0:
        return levels[0] * len(values)
    steps = len(levels) - 1
    return "".join(levels[0 if value <= 0 else max(1, round(value / top * steps))] for value in values)


def bar(share: float, width: int, levels: str = BLOCKS) -> str:
    """Return a bar for a share from 0 to 1. A share above zero is always visible."""
    share = min(max(share, 0.0), 1.0)
    filled = round(share * width)
    return (levels[-1] * (max(1, filled) if share > 0 else 0)).ljust(width)


SHARES = {"p50_seconds": 0.5, "p90_seconds": 0.9, "p99_seconds": 0.99}

COLUMNS, FEW_COLUMNS = 16, 8
"""The columns of a plot of durations, on a wide and on a narrow terminal."""

BAR = 10

# Text after a line that contains only \b is not rewrapped.
EPILOG = """
Examples:

\b
  raincheck stats
  raincheck stats --namespace reports --store /var/lib/tasks.db --json

Durations are of the latest tasks, rounded up by a fifth at most; all else is of the tasks that are kept. It ends
with 0, or with 2 if the store can't be used.
"""


def stats(
    ctx: typer.Context,
    store: StoreOption = None,
    namespace: NamespaceOption = None,
    tool: ToolOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say how long tasks take and how many fail."""

    async def work(clock: Clock) -> bool:
        async with open_operator_store(store, clock) as opened:
            found = await collect_stats(opened, Filters(namespace=namespace, tool=tool), now=clock.now())
        if as_json:
            typer.echo(json.dumps(stats_to_json(found), indent=2))
        else:
            print_stats(found)
        return True

    run_on_store(ctx, work)


def stats_to_json(stats: Stats) -> dict[str, Any]:
    """Return the statistics as JSON."""
    return {
        "at": format_timestamp(stats.now),
        "created_per_hour": stats.created,
        "ended_per_hour": stats.ended,
        "failed_per_hour": stats.failed,
        "tools": [
            {
                "namespace": one.namespace,
                "tool": one.tool,
                "measured": one.durations.total,
                **{name: one.durations.quantile(share) for name, share in SHARES.items()},
                "tasks": one.tasks,
                "live": one.live,
                "completed": one.completed,
                "errors": one.errors,
                "failed": one.failed,
                "cancelled": one.cancelled,
                "failure_share": one.failure_share,
            }
            for one in _sorted(stats)
        ],
    }


def _sorted(found: Stats) -> list[ToolStats]:
    """Sort the tools by their number of tasks, most first."""
    return sorted(found.tools.values(), key=lambda one: (-one.tasks, -one.durations.total, one.namespace, one.tool))


def print_stats(stats: Stats, console: Console | None = None) -> None:
    """Print a row for each tool, and the number of tasks in each of the last hours."""
    console = console or make_console()
    if not stats.tools:
        console.print("no tasks, and nothing measured: --namespace NAME looks for what a server measured once")
        return
    levels = plot_characters(console)
    console.print(_table(_sorted(stats), levels, console.width))
    console.print()
    hours = Table.grid(padding=(0, 2))
    for name, values in (("created", stats.created), ("ended", stats.ended), ("failed", stats.failed)):
        plot = Text(f"|{sparkline(values, levels)}|", "red" if name == "failed" else "cyan")
        hours.add_row(name, plot, f"{sum(values)} in {HOURS} h, at most {max(values)} in one")
    console.print(hours)


def _table(tools: list[ToolStats], levels: str, width: int) -> Table:
    """Return a table with a row for each tool. On a narrow terminal it has fewer columns."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    has_several, has_room = len({one.namespace for one in tools}) > 1, width >= WIDE_TERMINAL
    for title in ["namespace", "tool"] if has_several else ["tool"]:
        table.add_column(title, no_wrap=True, overflow="ellipsis", min_width=8)
    for title in ("measured", "median", "p90", "p99"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("durations", no_wrap=True)
    for title in ["tasks", "live", "failed"] if has_room else ["tasks", "failed"]:
        table.add_column(title, justify="right", no_wrap=True)
    for one in tools:
        share = one.failure_share
        names = [one.namespace, one.tool] if has_several else [one.tool]
        table.add_row(
            *(Text(printable(name)) for name in names),
            str(one.durations.total),
            *map(_seconds, (one.durations.quantile(share) for share in SHARES.values())),
            Text(sparkline(one.histogram(COLUMNS if has_room else FEW_COLUMNS), levels), "cyan"),
            *[str(one.tasks), *([str(one.live)] if has_room else [])],
            "" if not share else f"{one.failed + one.errors} ({share:.0%})",
            *([Text(bar(share or 0, BAR, levels), "red")] if has_room else []),
        )
    return table


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(seconds)
