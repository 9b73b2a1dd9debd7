"""`raincheck stats`: durations, counts and failure rates of a store's tasks.

Small plots fit into a line of text. They use block characters if the terminal supports them, else ASCII characters.
"""

import json
from collections.abc import Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from raincheck.cli.commands.tasks.ls import WIDE_TERMINAL
from raincheck.cli.operator import NamespaceOption, StoreOption, ToolOption, open_operator_store, store_command
from raincheck.cli.options import JsonOption
from raincheck.cli.output.results import make_console
from raincheck.clock import Clock
from raincheck.operations.describe import printable
from raincheck.operations.select import Filters
from raincheck.operations.serialize import format_timestamp
from raincheck.operations.statistics import HOURS, Stats, ToolStats, collect_stats
from raincheck.wire.fallback_text import format_duration

BLOCKS = " ▁▂▃▄▅▆▇█"
ASCII = " .:-=+*#@"


def plot_characters(console: Console) -> str:
    """Return the characters to plot with, from empty to full."""
    return BLOCKS if console.is_terminal and "utf" in console.encoding.lower() else ASCII


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

BAR_WIDTH = 10

EPILOG = """
Examples:

\b
  raincheck stats
  raincheck stats --namespace reports --store /var/lib/tasks.db --json

Durations are those of the latest tasks, rounded up by at most a fifth; all other numbers are about the tasks in the
store. Exit codes: 0 success; 2 the store can't be used.
"""


@store_command
async def stats(
    clock: Clock,
    store: StoreOption = None,
    namespace: NamespaceOption = None,
    tool: ToolOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how long tasks take, and how many fail."""
    async with open_operator_store(store, clock) as opened:
        collected = await collect_stats(opened, Filters(namespace=namespace, tool=tool), now=clock.now())
    if as_json:
        typer.echo(json.dumps(stats_to_json(collected), indent=2))
    else:
        print_stats(collected)


def stats_to_json(stats: Stats) -> dict[str, Any]:
    return {
        "at": format_timestamp(stats.now),
        "created_per_hour": stats.created,
        "ended_per_hour": stats.ended,
        "failed_per_hour": stats.failed,
        "tools": [
            {
                "namespace": tool.namespace,
                "tool": tool.tool,
                "measured": tool.durations.total,
                **{name: tool.durations.quantile(share) for name, share in SHARES.items()},
                "tasks": tool.tasks,
                "live": tool.live,
                "completed": tool.completed,
                "errors": tool.errors,
                "failed": tool.failed,
                "cancelled": tool.cancelled,
                "failure_share": tool.failure_share,
            }
            for tool in _sorted(stats)
        ],
    }


def _sorted(stats: Stats) -> list[ToolStats]:
    """Sort the tools by their number of tasks, largest first."""
    return sorted(
        stats.tools.values(), key=lambda tool: (-tool.tasks, -tool.durations.total, tool.namespace, tool.tool)
    )


def print_stats(stats: Stats, console: Console | None = None) -> None:
    """Print a row for each tool, and the number of tasks in each of the last hours."""
    console = console or make_console()
    if not stats.tools:
        console.print(
            "no tasks and no measured durations: --namespace NAME shows the durations of a server without tasks"
        )
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
    has_several, is_wide = len({tool.namespace for tool in tools}) > 1, width >= WIDE_TERMINAL
    for title in ["namespace", "tool"] if has_several else ["tool"]:
        table.add_column(title, no_wrap=True, overflow="ellipsis", min_width=8)
    for title in ("measured", "median", "p90", "p99"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("durations", no_wrap=True)
    for title in ["tasks", "live", "failed"] if is_wide else ["tasks", "failed"]:
        table.add_column(title, justify="right", no_wrap=True)
    for tool in tools:
        share = tool.failure_share
        names = [tool.namespace, tool.tool] if has_several else [tool.tool]
        table.add_row(
            *(Text(printable(name)) for name in names),
            str(tool.durations.total),
            *map(_seconds, (tool.durations.quantile(share) for share in SHARES.values())),
            Text(sparkline(tool.histogram(COLUMNS if is_wide else FEW_COLUMNS), levels), "cyan"),
            *[str(tool.tasks), *([str(tool.live)] if is_wide else [])],
            "" if not share else f"{tool.failed + tool.errors} ({share:.0%})",
            *([Text(bar(share or 0, BAR_WIDTH, levels), "red")] if is_wide else []),
        )
    return table


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(seconds)
