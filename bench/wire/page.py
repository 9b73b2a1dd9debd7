"""What was measured, on the page about performance: written by the command, so that nobody has to copy it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.markdown import fill_parts, markdown
from bench.wire.cell import AIMS, Cell

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "performance.json"
PAGE = ROOT / "docs" / "reference" / "performance.md"


def load() -> tuple[str, list[Cell]]:
    """Where it was measured, and what."""
    content: Mapping[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return content["machine"], [Cell(**cell) for cell in content["cells"]]


def save(machine: str, cells: Sequence[Cell]) -> None:
    rounded = [asdict(cell) | _whole(cell) for cell in cells]
    content = {"machine": machine, "cells": rounded}
    RESULTS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _whole(cell: Cell) -> dict[str, Any]:
    return {name: [round(rate) for rate in getattr(cell, name)] for name in ("measured", "against")}


def fill(page: str, machine: str, cells: Sequence[Cell]) -> str:
    """The page with these figures."""
    parts = {
        "machine": lambda: f"Measured on {machine}.",
        "aims": lambda: aims_table(cells),
        "plain": lambda: table([cell for cell in cells if cell.operation == "call" and cell.callers == 16]),
        **{f"callers {count}": (lambda count=count: tasks_table(cells, count)) for count in (1, 16, 64)},
    }
    return fill_parts(page, "performance", parts)


def aims_table(cells: Sequence[Cell]) -> str:
    found = {(cell.server, cell.operation, cell.callers): cell for cell in cells}
    rows: list[Sequence[str]] = []
    for key, aim in AIMS.items():
        server, operation, callers = key
        cell = found[key]
        verdict = "met" if cell.ratio >= aim else "**missed**"
        rows.append((f"`{operation}`, {callers} at once", server, f"{aim:.2f}", _shown(cell), verdict))
    return markdown(("what", "server", "aim", "measured", ""), rows)


def tasks_table(cells: Sequence[Cell], callers: int) -> str:
    return table([cell for cell in cells if cell.operation != "call" and cell.callers == callers])


def table(cells: Sequence[Cell]) -> str:
    """A row for each server, a column for each operation."""
    operations = list(dict.fromkeys(cell.operation for cell in cells))
    found = {(cell.server, cell.operation): cell for cell in cells}
    rows = [
        (server, *(_shown(found.get((server, operation))) for operation in operations))
        for server in dict.fromkeys(cell.server for cell in cells)
    ]
    return markdown(("server", *(f"`{operation}`" for operation in operations)), rows)


def _shown(cell: Cell | None) -> str:
    if cell is None:
        return "-"
    low, *_, high = cell.ratios if len(cell.ratios) > 1 else [cell.ratio] * 2
    return f"{cell.ratio:.2f} ({low:.2f} to {high:.2f})"
