"""Every SQLite query uses an index: none scans or sorts a whole table."""

import re
import sqlite3
from pathlib import Path
from typing import get_args

import pytest

from raincheck.stores import sql_store
from raincheck.stores.requests import ListKind
from raincheck.stores.sqlite import writes
from raincheck.stores.sqlite.connection import connect, prepare_file
from raincheck.stores.sqlite.migrate import shipped_migrations
from raincheck.stores.sqlite.writes import QUERIES

PACKAGE = Path(writes.__file__).parent

# What each query may go through, where that is not a search by an index.
ALLOWED = {
    "count_live": {"SCAN tasks USING INDEX tasks_live", "USE TEMP B-TREE FOR GROUP BY"},
    # When a server starts.
    "needed_definitions": {"SCAN tasks USING INDEX tasks_live", "SCAN definitions"},
    "live_of_owner": {"SCAN (subquery-1)"},
    # One row: how far the queue has been served.
    "next_turn": {"SCAN line"},
    # At most the tasks of one claim.
    "advance_served_turns": {"USE TEMP B-TREE FOR GROUP BY"},
    # The data of one task is sorted in recording order.
    "all_steps": {"USE TEMP B-TREE FOR ORDER BY"},
    "all_inputs": {"USE TEMP B-TREE FOR ORDER BY"},
    "open_inputs": {"USE TEMP B-TREE FOR ORDER BY"},
    # The oldest and newest key of a table: one lookup each, not a scan.
    "changes_bounds": {"SEARCH changes"},
}
HARMLESS = re.compile(
    r"SEARCH .* USING |(LIST|(CORRELATED )?SCALAR) SUBQUERY|CO-ROUTINE|SCAN json_each|SCAN (\d+ )?CONSTANT ROW"
)


@pytest.fixture
def connection(tmp_path: Path) -> sqlite3.Connection:
    prepare_file(tmp_path / "tasks.db", connect, 5, shipped_migrations())
    return connect(str(tmp_path / "tasks.db"), 5)


@pytest.mark.parametrize("name", QUERIES)
def test_no_query_scans_or_sorts_the_whole_table(connection: sqlite3.Connection, name: str) -> None:
    names = set(re.findall(r":(\w+)", QUERIES[name]))
    parameters = dict.fromkeys(names) if names else [None] * QUERIES[name].count("?")
    plan = connection.execute(f"EXPLAIN QUERY PLAN {QUERIES[name]}", parameters).fetchall()
    steps = {detail for *_, detail in plan}
    assert {step for step in steps if not HARMLESS.match(step)} <= ALLOWED.get(name, set())


def test_every_query_has_a_name_a_comment_and_a_statement() -> None:
    blocks = (PACKAGE / "queries.sql").read_text().split("-- name: ")[1:]
    assert len(blocks) == len(QUERIES)
    for block in blocks:
        name, sentence, *_ = block.splitlines()
        assert re.fullmatch(r"-- [A-Z].*", sentence), name


def test_every_query_is_used() -> None:
    code = "".join(file.read_text() for file in (*PACKAGE.glob("*.py"), Path(sql_store.__file__)))
    assert {name for name in QUERIES if f'"{name}"' not in code} == set(get_args(ListKind)), (
        "these are named by queries"
    )
