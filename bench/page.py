"""What was measured, on the page about performance: written by the command, so that nobody has to copy it."""

from collections.abc import Sequence
from pathlib import Path

from bench.figure import Figure, number
from bench.markdown import fill_parts, markdown
from bench.plots import plot
from bench.results import Results

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "performance.md"

_KNOWN = ("told", "polled")
_IMPORT = "import"
_MANY = ("memory, finished", "memory, live", "get among many")


def write(results: Results) -> list[Path]:
    """Write the page anew, with its pictures, and return where that is."""
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    return [PAGE, *plot(results.figures, PAGE.parent, "performance")]


def fill(page: str, results: Results) -> str:
    """The page with these figures."""
    figures = results.figures
    parts = {
        "machine": lambda: f"Measured on {results.at[:10]}, on {results.machine}. {_count(results)}",
        "aims": lambda: aims_table([one for one in figures if one.bound and (one.server or one.name == _IMPORT)]),
        "plain": lambda: table([one for one in figures if one.name == "call x16"]),
        **{f"callers {count}": (lambda count=count: tasks_table(figures, count)) for count in (1, 16, 64)},
        "known": lambda: table([one for one in figures if one.name in _KNOWN]),
        "many": lambda: table([one for one in figures if one.name in _MANY]),
        "start": lambda: table([one for one in figures if one.name == "start"]),
        "imports": lambda: inside_table([one for one in figures if one.name.startswith(_IMPORT)]),
        "inside": lambda: inside_table(
            [one for one in figures if one.server is None and not one.name.startswith(_IMPORT)]
        ),
    }
    return fill_parts(page, "performance", parts)


def _count(results: Results) -> str:
    told = f"Of {results.bounds} aims, {results.missed} are missed."
    return f"{told} Those that are not about servers are under [Inside](#inside)."


def aims_table(figures: Sequence[Figure]) -> str:
    rows = [(f"`{one.name}`", one.server or "", _bound(one), shown(one), _verdict(one)) for one in figures]
    return markdown(("what", "server", "aim", "measured", ""), rows)


def inside_table(figures: Sequence[Figure]) -> str:
    rows = [(one.what, _bound(one), shown(one), _verdict(one)) for one in figures]
    return markdown(("what", "aim", "measured", ""), rows)


def tasks_table(figures: Sequence[Figure], callers: int) -> str:
    return table([one for one in figures if one.name.endswith(f" x{callers}") and not one.name.startswith("call ")])


def table(figures: Sequence[Figure]) -> str:
    """A row for each server, a column for each name."""
    names = list(dict.fromkeys(one.name for one in figures))
    found = {(one.server, one.name): one for one in figures}
    rows = [
        (server or "", *(shown(found.get((server, name))) for name in names))
        for server in dict.fromkeys(one.server for one in figures)
    ]
    return markdown(("server", *(f"`{name}`" for name in names)), rows)


def shown(figure: Figure | None) -> str:
    """A ratio, or what was measured with its unit; and between what it lay."""
    if figure is None:
        return "-"
    unit = "" if figure.against is not None else f" {figure.unit}"
    between = "" if figure.spread is None else " ({} to {})".format(*map(number, figure.spread))
    return f"{number(figure.value)}{unit}{between}"


def _bound(figure: Figure) -> str:
    if figure.bound is None:
        return "-"
    return f"{figure.bound} {figure.unit}" if figure.against is None else str(figure.bound)


def _verdict(figure: Figure) -> str:
    return figure.verdict.replace("MISSED", "**missed**")
