"""Plots of the figures: a bar for each server (ours are blue), and a red line at the aim."""
# The keyword arguments of matplotlib have no types.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from bench.figure import Figure, number

mpl.use("agg")

OURS, THEIRS = "#2a6f97", "#b0b7bf"
AIM = "#c1121f"
COLUMNS = 2
_PEERS = ("FastMCP", "mcp ", "floor")


class Panel(NamedTuple):
    """One plot of a page: the figure and its title."""

    name: str
    title: str


PAGES: Mapping[str, Sequence[Panel]] = {
    "calls": (
        Panel("create x16", "handles created, 16 at once; 1 is a plain call"),
        Panel("get x16", "polls, 16 at once; 1 is a plain call"),
        Panel("all done x16", "tasks at once until all are done; 1 is a plain call"),
        Panel("result x1", "from a call to its result, one by one; 1 is a plain call"),
    ),
    "knowledge": (
        Panel("told", "the end is known by a subscription after, ms"),
        Panel("polled", "and by polling, as a part of the task's length"),
    ),
    "many": (
        Panel("memory, finished", "memory for each finished task, KiB"),
        Panel("memory, live", "memory for each live task, KiB"),
        Panel("get among many", "polls with many tasks, by those with 100"),
    ),
}
"""The plots, by the name of their file."""


def plot(figures: Sequence[Figure], folder: Path, prefix: str) -> list[Path]:
    """Draw the measured figures, and return the paths of the files."""
    written: list[Path] = []
    for name, panels in PAGES.items():
        drawn = [
            (panel, found) for panel in panels if (found := [figure for figure in figures if figure.name == panel.name])
        ]
        if drawn:
            path = folder / f"{prefix}-{name}.png"
            _page(drawn, path)
            written.append(path)
    return written


def _page(drawn: Sequence[tuple[Panel, Sequence[Figure]]], path: Path) -> None:
    rows = ceil(len(drawn) / COLUMNS)
    height = 0.6 + 0.28 * max(len(found) for _, found in drawn)
    picture, axes = plt.subplots(rows, COLUMNS, figsize=(5 * COLUMNS, height * rows))
    for axis in axes.flat[len(drawn) :]:
        axis.remove()
    for (panel, found), axis in zip(drawn, axes.flat, strict=False):
        _bars(axis, panel, found)
    picture.tight_layout()
    picture.savefig(path, dpi=110)
    plt.close(picture)


def _bars(axis: Axes, panel: Panel, found: Sequence[Figure]) -> None:
    names = [figure.server or figure.name for figure in found]
    values = [figure.value for figure in found]
    colours = [THEIRS if name.startswith(_PEERS) else OURS for name in names]
    bars = axis.barh(names, values, color=colours)
    axis.bar_label(bars, [number(value) for value in values], padding=3, fontsize=7)
    for bar, figure in zip(bars, found, strict=True):
        if figure.bound is not None:
            axis.vlines(figure.bound.limit, bar.get_y(), bar.get_y() + bar.get_height(), color=AIM, linewidth=2)
    axis.invert_yaxis()
    axis.set_title(panel.title, fontsize=9)
    axis.tick_params(labelsize=7)
    axis.margins(x=0.15)
    axis.spines[["top", "right"]].set_visible(False)
