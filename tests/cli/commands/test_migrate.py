"""Tests for `raincheck migrate`: it creates or updates the tables, reports that, and changes nothing else."""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any, LiteralString, cast

import psycopg
import pytest

from raincheck.stores.sqlite.migrate import shipped_migrations
from tests.support.cli.operator import create_task_in_each_phase, in_store
from tests.support.cli.terminal import PATIENCE, environment, run
from tests.support.cli.worker_processes import SECRET, with_password
from tests.support.postgres.server import PostgresServer

pytestmark = pytest.mark.usefixtures("folder")

TABLES = """
SELECT schemaname || '.' || tablename FROM pg_tables
WHERE tablename IN ('tasks', 'procrastinate_jobs') ORDER BY 1
"""


def sql(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(cast("LiteralString", statement))
        return [row[0] for row in cursor.fetchall()] if cursor.description else []


def migrated(store: str) -> dict[str, Any]:
    done = run("migrate", "--store", store, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def refused(store: str) -> str:
    done = run("migrate", "--store", store)
    assert (done.returncode, done.stdout) == (2, "")
    assert SECRET not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


def test_migrate_creates_the_tables_of_a_database_once(database_url: str) -> None:
    store, shown = with_password(database_url), database_url.replace("postgres@", "")
    done = run("migrate", "--store", store)
    made = (
        "its tables were created at version 1, "
        "and the tables of its queue (Procrastinate) were created or brought up to date"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{shown}: {made}\n", "")
    assert sql(database_url, TABLES) == ["raincheck.procrastinate_jobs", "raincheck.tasks"]
    again = run("migrate", "--store", store)
    assert again.stdout == f"{shown} is up to date at version 1: nothing was changed\n"
    assert migrated(store) == {"store": shown, "changed": False, "from": 1, "to": 1, "queue_changed": False}


def test_the_url_selects_the_schemas(database_url: str) -> None:
    done = migrated(f"{database_url}?schema=mine&procrastinate_schema=jobs")
    assert (done["changed"], done["from"], done["to"], done["queue_changed"]) == (True, 0, 1, True)
    assert sql(database_url, TABLES) == ["jobs.procrastinate_jobs", "mine.tasks"]


def test_an_unmarked_queue_is_accepted(database_url: str) -> None:
    migrated(database_url)
    sql(database_url, "DROP TABLE raincheck.raincheck_procrastinate")
    done = run("migrate", "--store", database_url).stdout
    assert done.endswith(": the tables of its queue (Procrastinate) were created or brought up to date\n")
    assert migrated(database_url)["changed"] is False


def test_migrate_creates_a_file_and_then_finds_it_up_to_date() -> None:
    newest, shown = shipped_migrations()[-1].version, str(Path("new.db").absolute())
    assert run("migrate", "--store", "new.db").stdout == f"{shown}: its tables were created at version {newest}\n"
    assert migrated("new.db") == {
        "store": shown,
        "changed": False,
        "from": newest,
        "to": newest,
        "queue_changed": False,
    }


def test_a_file_of_another_program_is_left_unchanged() -> None:
    sqlite3.connect("songs.db").execute("CREATE TABLE songs (name TEXT)").connection.close()
    before = Path("songs.db").read_bytes()
    assert "a database of another program" in refused("songs.db")
    assert Path("songs.db").read_bytes() == before


def test_a_newer_schema_and_foreign_tables_are_left_unchanged(database_url: str) -> None:
    sql(database_url, "CREATE SCHEMA other")
    sql(database_url, "CREATE TABLE other.tasks (name TEXT)")
    assert "the schema 'other' has tables of another program" in refused(f"{database_url}?schema=other")
    migrated(database_url)
    sql(database_url, "INSERT INTO raincheck.raincheck_schema VALUES (999)")
    assert "its schema is version 999, and this raincheck knows versions up to 1" in refused(database_url)
    assert sql(database_url, TABLES) == ["other.tasks", "raincheck.procrastinate_jobs", "raincheck.tasks"]


def test_without_the_right_to_create_tables_nothing_is_created(
    database_url: str, postgres_server: PostgresServer, request: pytest.FixtureRequest
) -> None:
    postgres_server.run("CREATE ROLE guest LOGIN")
    request.addfinalizer(lambda: postgres_server.run("DROP ROLE guest"))
    assert "permission denied" in refused(database_url.replace("postgres@", f"guest:{SECRET}@"))
    assert sql(database_url, TABLES) == []


def test_a_read_only_database_is_reported(database_url: str) -> None:
    assert "the database accepts no writes" in refused(
        f"{with_password(database_url)}?options=-c%20default_transaction_read_only%3Don"
    )
    assert sql(database_url, TABLES) == []


@pytest.mark.parametrize(
    ("store", "why"),
    [
        (
            "postgresql://app:sesame99@127.0.0.1:1/tasks",
            "postgresql://127.0.0.1:1/tasks: the database can't be reached",
        ),
        ("postgresql://app:sesame99@127.0.0.1:1/tasks?schema=", "'' can't be the schema of a store"),
        (
            "postgresql://app:sesame99@127.0.0.1:1/tasks?shcema=mine",
            "the URL of the PostgreSQL store can't be parsed",
        ),
        ("postgresql://app:sesame99@[127.0.0.1/tasks", "the URL of the PostgreSQL store can't be parsed"),
        ("memory:", "a store in memory has no schema: name a store in a file or a database"),
        ("mysql://app:sesame99@host/db", "the store has an unknown kind 'mysql'"),
        ("nowhere/tasks.db", "there is no folder"),
        (".", "is a folder: name a file in it"),
    ],
)
def test_migration_errors_contain_no_password(store: str, why: str) -> None:
    assert why in refused(store)


@pytest.mark.cold
@pytest.mark.parametrize("words", [["migrate"], ["doctor"], ["tasks", "ls"]], ids=" ".join)
def test_without_the_extra_the_error_says_what_to_install(words: list[str]) -> None:
    without = "import sys; sys.modules['procrastinate'] = None"
    script = f"{without}; sys.argv[1:] = {words}; from raincheck.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=environment(RAINCHECK_STORE=f"postgresql://app:{SECRET}@127.0.0.1:1/tasks"),
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "a PostgreSQL store needs procrastinate: install it with pip install 'raincheck[postgres]'" in done.stderr
    assert SECRET not in done.stderr


def test_tasks_stay_as_they_are(database_url: str) -> None:
    tasks = in_store(create_task_in_each_phase, store=database_url)
    migrated(database_url)
    saved = sql(database_url, "SELECT id FROM raincheck.tasks ORDER BY id")
    assert saved == sorted(task.id for task in tasks.values())
