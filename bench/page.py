"""Write the measured figures into the performance page."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import entrances
from bench.figure import Figure, number
from bench.markdown import fill_parts, markdown
from bench.plots import plot
from bench.results import Results

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "performance.md"

_KNOWN = ("told", "polled")
_IMPORT = "import"
_MANY = ("memory, finished", "memory, live", "get among many")
_IN_SHORT: Mapping[str, str] = {
    "create x16": "handles created, by 16 callers",
    "get x16": "polls, by 16 callers",
    "all done x16": "1,000 tasks until all are done",
    "result x1": "from a call to its result, one by one",
    "cancel x16": "cancels, by 16 callers",
    "update x16": "answers to questions, by 16 callers",
    "polled": "how late polling callers know of an end, by the task's length",
    "memory, finished": "memory of the server for a finished task",
}
_SIDE_BY_SIDE = ("SQLite FULL", "PostgreSQL", "FastMCP 4, memory", "FastMCP 4, Redis", "mcp 1.x tasks")


def write(results: Results) -> list[Path]:
    """Update the page and its plots, and return their paths."""
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    return [PAGE, *plot(results.figures, PAGE.parent, "performance")]


def fill(page: str, results: Results) -> str:
    """Return the page with these figures."""
    figures = results.figures
    parts = {
        "machine": lambda: f"Measured on {results.at[:10]}, on {results.machine}. {_count(results)}",
        "short": lambda: short_table(figures),
        "aims": lambda: aims_table(
            [figure for figure in figures if figure.bound and (figure.server or figure.name == _IMPORT)]
        ),
        "plain": lambda: table([figure for figure in figures if figure.name == "call x16"]),
        **{f"callers {count}": (lambda count=count: tasks_table(figures, count)) for count in (1, 16, 64)},
        "known": lambda: table([figure for figure in figures if figure.name in _KNOWN]),
        "many": lambda: table([figure for figure in figures if figure.name in _MANY]),
        "start": lambda: table([figure for figure in figures if figure.name == "start"]),
        "entrances": lambda: table([figure for figure in figures if figure.server in entrances.NAMES]),
        "imports": lambda: inside_table([figure for figure in figures if figure.name.startswith(_IMPORT)]),
        "inside": lambda: inside_table(
            [figure for figure in figures if figure.server is None and not figure.name.startswith(_IMPORT)]
        ),
    }
    return fill_parts(page, "performance", parts)


def _count(results: Results) -> str:
    summary = f"Of {results.bounds} aims, {results.missed} are missed."
    return f"{summary} Those that are not about servers are under [Inside](#inside)."


def short_table(figures: Sequence[Figure]) -> str:
    """Return a table of the main figures, ours beside those of peers."""
    found = {(figure.name, figure.server): figure for figure in figures}
    rows = [
        (what, f"`{name}`", *(_median(found.get((name, server))) for server in _SIDE_BY_SIDE))
        for name, what in _IN_SHORT.items()
    ]
    return markdown(("what", "", *_SIDE_BY_SIDE), rows)


def aims_table(figures: Sequence[Figure]) -> str:
    rows = [
        (f"`{figure.name}`", figure.server or "", _bound(figure), shown(figure), _verdict(figure)) for figure in figures
    ]
    return markdown(("what", "server", "aim", "measured", ""), rows)


def inside_table(figures: Sequence[Figure]) -> str:
    rows = [(figure.what, _bound(figure), shown(figure), _verdict(figure)) for figure in figures]
    return markdown(("what", "aim", "measured", ""), rows)


def tasks_table(figures: Sequence[Figure], callers: int) -> str:
    return table(
        [figure for figure in figures if figure.name.endswith(f" x{callers}") and not figure.name.startswith("call ")]
    )


def table(figures: Sequence[Figure]) -> str:
    """Return a table with a row for each server and a column for each figure."""
    if not figures:
        return "This run did not measure it."
    names = list(dict.fromkeys(figure.name for figure in figures))
    found = {(figure.server, figure.name): figure for figure in figures}
    rows = [
        (server or "", *(shown(found.get((server, name))) for name in names))
        for server in dict.fromkeys(figure.server for figure in figures)
    ]
    return markdown(("server", *(f"`{name}`" for name in names)), rows)


def shown(figure: Figure | None) -> str:
    """Format a ratio, or a measured value with its unit, with its spread."""
    if figure is None or figure.spread is None:
        return _median(figure)
    return "{} ({} to {})".format(_median(figure), *map(number, figure.spread))


def _median(figure: Figure | None) -> str:
    if figure is None:
        return "-"
    unit = "" if figure.against is not None else f" {figure.unit}"
    return f"{number(figure.value)}{unit}"


def _bound(figure: Figure) -> str:
    if figure.bound is None:
        return "-"
    return f"{figure.bound} {figure.unit}" if figure.against is None else str(figure.bound)


def _verdict(figure: Figure) -> str:
    return figure.verdict.replace("MISSED", "**missed**")
