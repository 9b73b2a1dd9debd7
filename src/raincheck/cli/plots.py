"""Small plots in a line of text: with blocks where a terminal shows them, else with plain characters."""

from collections.abc import Sequence

from rich.console import Console

BLOCKS = " ▁▂▃▄▅▆▇█"
PLAIN = " .:-=+*#@"


def levels_for(console: Console) -> str:
    """The characters to plot with, from nothing to full."""
    return BLOCKS if console.is_terminal and "utf" in console.encoding.lower() else PLAIN


def sparkline(values: Sequence[float], levels: str = BLOCKS) -> str:
    """A column for each value, the largest the highest. What is more than nothing can be seen."""
    top = max(values, default=0)
    if top <= 0:
        return levels[0] * len(values)
    steps = len(levels) - 1
    return "".join(levels[0 if value <= 0 else max(1, round(value / top * steps))] for value in values)


def bar(share: float, width: int, levels: str = BLOCKS) -> str:
    """A bar for a part from 0 to 1. What is more than nothing can be seen."""
    share = min(max(share, 0.0), 1.0)
    filled = round(share * width)
    return (levels[-1] * (max(1, filled) if share > 0 else 0)).ljust(width)
