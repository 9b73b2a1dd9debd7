"""Tests for plots in a line of text: positive values are visible, and nothing is out of range."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from raincheck.cli.commands.stats import ASCII, BLOCKS, bar, plot_characters, sparkline
from raincheck.operations.statistics import merge_columns


def test_a_sparkline_has_a_column_for_each_value() -> None:
    assert sparkline([0, 1, 4, 8]) == " ▁▄█"
    assert sparkline([0, 1, 4, 8], ASCII) == " .=@"
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "  "
    assert sparkline([1, 10_000]) == "▁█"


@given(st.lists(st.integers(0, 10**9), max_size=50))
def test_a_sparkline_shows_every_positive_value(values: list[int]) -> None:
    line = sparkline(values)
    assert len(line) == len(values)
    assert [one == " " for one in line] == [value == 0 for value in values]
    if any(values):
        assert line[values.index(max(values))] == "█"


@pytest.mark.parametrize(
    ("share", "shown"), [(0, "    "), (0.001, "█   "), (0.5, "██  "), (1, "████"), (7, "████"), (-1, "    ")]
)
def test_a_bar_is_proportional_to_its_share(share: float, shown: str) -> None:
    assert bar(share, 4) == shown


@given(st.lists(st.integers(0, 100)), st.integers(1, 20))
def test_values_are_grouped_into_columns_without_loss(values: list[int], most: int) -> None:
    columns = merge_columns(values, most)
    assert len(columns) <= most or not values
    assert sum(columns) == sum(values)


@pytest.mark.parametrize(
    ("is_terminal", "encoding", "levels"), [(True, "utf-8", BLOCKS), (True, "latin-1", ASCII), (False, "utf-8", ASCII)]
)
def test_blocks_are_for_terminals_that_can_show_them(is_terminal: bool, encoding: str, levels: str) -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    assert plot_characters(Console(file=file, force_terminal=is_terminal)) == levels
