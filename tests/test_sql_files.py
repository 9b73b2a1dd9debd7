"""Named queries are loaded whole, each under its name."""

from pathlib import Path

import pytest

from raincheck.errors import ConfigurationError
from raincheck.sql_files import load_queries
from raincheck.stores.sqlite.writes import QUERIES


def _load(folder: Path, text: str) -> dict[str, str]:
    file = folder / "queries.sql"
    file.write_bytes(text.encode())
    return load_queries(file)


def test_each_statement_is_found_by_its_name_without_comments_and_semicolon(tmp_path: Path) -> None:
    queries = _load(
        tmp_path,
        """-- What a newcomer should know about this file.

-- name: load_task
-- The task of this id.
SELECT *
  -- everything
FROM tasks
WHERE id = :id;

-- name: forget_task
-- It and all that belongs to it.
DELETE FROM tasks WHERE id = :id
""",
    )
    assert queries == {
        "load_task": "SELECT *\nFROM tasks\nWHERE id = :id",
        "forget_task": "DELETE FROM tasks WHERE id = :id",
    }
    assert list(queries) == ["load_task", "forget_task"]


def test_line_ends_of_windows_are_no_part_of_a_statement(tmp_path: Path) -> None:
    assert _load(tmp_path, "-- name: one\r\n-- A sentence.\r\nSELECT 1,\r\n2;\r\n") == {"one": "SELECT 1,\n2"}


def test_non_ascii_letters_are_preserved(tmp_path: Path) -> None:
    assert _load(tmp_path, "-- name: one\nSELECT 'é😀';\n") == {"one": "SELECT 'é😀'"}


@pytest.mark.parametrize("text", ["", "\n", "-- only a comment\n", "SELECT 1;\n"])
def test_a_file_without_names_has_no_queries(text: str, tmp_path: Path) -> None:
    assert _load(tmp_path, text) == {}


def test_a_name_comment_inside_a_line_is_ignored(tmp_path: Path) -> None:
    queries = _load(tmp_path, "-- name: one\nSELECT '-- name: two';\n")
    assert queries == {"one": "SELECT '-- name: two'"}


def test_every_shipped_query_is_one_statement() -> None:
    for name, statement in QUERIES.items():
        assert statement.split()[0] in ("DELETE", "INSERT", "SELECT", "UPDATE", "WITH"), name
        assert ";" not in statement, name
        assert "--" not in statement, name


def test_a_duplicate_query_name_is_an_error(tmp_path: Path) -> None:
    text = "".join(f"-- name: {name}\nSELECT 1;\n" for name in ("one", "two", "three", "two", "one", "two"))
    with pytest.raises(ConfigurationError, match=r"queries\.sql has several queries of the same name: one, two$"):
        _load(tmp_path, text)
