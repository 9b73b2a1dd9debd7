"""`scripts/bench` turns figures into a table, JSON, plots, and the performance page."""

from pathlib import Path

import pytest
from bench.__main__ import options_of
from bench.figure import Bound, Figure, table
from bench.plots import plot
from bench.results import PUBLISHED, Results

from bench import page

PNG = b"\x89PNG\r\n"


def figure(
    name: str = "create x16",
    server: str | None = "SQLite FULL",
    *,
    measured: tuple[float, ...] = (50, 90, 30),
    against: tuple[float, ...] | None = (100, 100, 50),
    bound: Bound | None = None,
) -> Figure:
    return Figure(name, "handles", "ms" if against is None else "1/s", measured, against, bound, server)


def test_the_page_has_the_stored_figures() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert text.count("<!-- performance: ") == 13
    assert page.fill(text, Results.load(PUBLISHED)) == text, "run scripts/bench --write"


def test_a_ratio_is_the_median_of_its_rounds() -> None:
    one = figure(bound=Bound("at least", 0.6))
    assert (one.value, one.values) == (0.6, [0.5, 0.6, 0.9])
    assert one.verdict == "met, not clear"
    assert "0.60 (0.50 to 0.90)" in page.table([one])


def test_a_bound_without_a_comparison_is_in_the_unit_of_the_figure() -> None:
    one = figure("told", measured=(3, 1, 40), against=None, bound=Bound("at most", 2))
    assert (one.value, one.verdict) == (3, "MISSED, not clear")
    assert page.shown(one) == "3.00 ms (1.00 to 40.0)"
    assert "at most 2" in table([one])


def test_a_missing_measurement_is_shown_as_missing() -> None:
    one, other = figure("create x1", "one"), figure("get x1", "other", measured=(1,), against=(4,))
    assert page.table([one, other]).splitlines()[-1] == "| other | - | 0.25 |"


def test_a_section_of_the_page_says_that_the_run_did_not_measure_it() -> None:
    results = Results("2026-01-01T00:00+00:00", "full", "a machine", [figure()])
    text = page.fill("<!-- performance: entrances -->\n<!-- end performance -->", results)
    assert text.splitlines()[1] == "This run did not measure it."


def test_results_are_read_back_unchanged(tmp_path: Path) -> None:
    results = Results("2026-01-01T00:00+00:00", "full", "a machine", [figure(bound=Bound("at least", 0.6)), figure()])
    results.save(tmp_path / "results.json")
    read = Results.load(tmp_path / "results.json")
    assert page.aims_table(read.figures[:1]) == page.aims_table(results.figures[:1])
    assert [one.as_json()["is_met"] for one in read.figures] == [True, True]
    assert table(read.figures) == table(results.figures)


def test_there_is_a_picture_of_each_kind_that_was_measured(tmp_path: Path) -> None:
    told = figure("told", against=None, bound=Bound("at most", 25))
    written = plot([figure(), figure("get x16"), told], tmp_path, "some")
    assert [path.name for path in written] == ["some-calls.png", "some-knowledge.png"]
    assert all(path.read_bytes().startswith(PNG) for path in written)


@pytest.mark.parametrize("less", [["--quick"], ["--only", "grace"], ["--servers", "memory"]])
def test_the_page_is_only_written_from_a_complete_run(less: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options_of(["--write", *less])
    assert "--write is for a whole run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--json", "nowhere/figures.json"], "--json takes a file in an existing folder"),
        (["--json", "."], "--json takes a file in an existing folder"),
        (["--only", "grace", "--servers", "memory"], "--servers is for the section wire"),
    ],
)
def test_invalid_options_are_refused_before_anything_is_measured(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options_of(arguments)
    assert told in capsys.readouterr().err


def test_an_unknown_server_is_refused_with_the_known_servers(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options_of(["--servers", "Sqlite"])
    assert "'SQLite FULL'" in capsys.readouterr().err
