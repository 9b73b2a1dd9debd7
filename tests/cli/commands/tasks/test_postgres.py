"""Tests for the operator's commands on PostgreSQL: they use its clock, and print no password."""

import json
import time
from contextlib import suppress
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, LiteralString, Self, cast

import psycopg
import pytest

from raincheck.clock import SystemClock
from raincheck.core.records import Task
from raincheck.operations.describe import redact_store_url
from raincheck.testing import FakeClock, StoreHarness
from tests.support.cli.operator import START, create_task_in_each_phase, in_store, run
from tests.support.cli.terminal import run as run_now
from tests.support.cli.worker_processes import SECRET, with_password
from tests.support.postgres.server import PostgresServer

pytestmark = pytest.mark.usefixtures("folder")

HELD = """
UPDATE procrastinate_jobs SET status = 'doing', worker_id = (SELECT min(id) FROM procrastinate_workers)
"""


def sql(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True, options="-c search_path=raincheck") as connection:
        for statement in statements:
            connection.execute(cast("LiteralString", statement))


async def nothing(_: StoreHarness) -> None: ...


async def one_queued(harness: StoreHarness) -> Task:
    return await harness.create()


def checkup(store: str, exit_code: int = 0) -> dict[str, dict[str, Any]]:
    """What the doctor finds, by name."""
    done = run_now("doctor", "--store", store, "--json")
    assert done.returncode == exit_code, done
    assert SECRET not in done.stdout + done.stderr
    reported = json.loads(done.stdout)
    assert reported["store"] == store.partition("?")[0].replace("postgres@", "").replace(f"postgres:{SECRET}@", "")
    return {finding["name"]: finding for finding in reported["findings"]}


def verdicts(findings: dict[str, dict[str, Any]]) -> dict[str, str]:
    return {name: finding["verdict"] for name, finding in findings.items() if finding["verdict"] != "ok"}


def test_every_command_works_on_postgres_as_on_a_file(database_url: str) -> None:
    store, clock = with_password(database_url), FakeClock(START + timedelta(hours=1))
    tasks = in_store(create_task_in_each_phase, store=database_url)

    def done(*words: str, exit_code: int = 0) -> str:
        result = run(*words, "--store", store, clock=clock)
        assert result.exit_code == exit_code, result.output
        assert SECRET not in result.output
        return result.stdout

    assert len(json.loads(done("tasks", "ls", "--json"))) == len(tasks)
    assert "paused" in done("tasks", "ls", "--status", "paused")
    shown = done("tasks", "show", tasks["failed"].id)
    assert "boom" in shown
    # The suggested command names the store without its password.
    assert "--store postgresql://postgres:...@127.0.0.1:" in shown
    assert "is cancelled" in done("tasks", "cancel", tasks["running"].id, "--reason", "enough")
    assert "is paused" in done("tasks", "pause", tasks["queued"].id)
    assert "is resumed" in done("tasks", "resume", tasks["queued"].id)
    assert "is retried as" in done("tasks", "retry", tasks["failed"].id)
    assert len(done("tasks", "export").splitlines()) == len(tasks) + 1
    assert done("tasks", "watch", tasks["completed"].id).count("completed") == 1
    assert "4 tasks deleted" in done("tasks", "purge", "--older-than", "30m", "--yes")
    assert json.loads(done("stats", "--json"))["tools"][0]["tasks"] == len(tasks) + 1 - 4
    assert "there is no task 'nope'" in run("tasks", "show", "nope", "--store", store, clock=clock).stderr


def test_times_follow_the_clock_of_the_database(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Now(FakeClock):
        def now(self) -> datetime:
            return SystemClock().now()

    in_store(one_queued, Now(START), store=database_url)

    class Wrong(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return super().now(tz) + timedelta(hours=3)

    # The clock of a store falls back to the machine's, without going through the other class.
    monkeypatch.setattr("raincheck.clock.datetime", Wrong)
    listed = run_now("tasks", "ls", "--store", database_url).stdout
    assert "queued" in listed
    assert "3 h" not in listed
    findings = checkup(database_url, exit_code=1)
    assert verdicts(findings) == {"time": "warn", "alive": "bad"}
    assert findings["time"]["message"] == "the database's clock and this machine's are 3 h apart"


def test_a_healthy_database_is_ok_in_every_line(database_url: str) -> None:
    in_store(nothing, store=database_url)
    findings = checkup(with_password(database_url))
    assert verdicts(findings) == {}
    place = ["opens", "server", "writes", "connections", "time", "schema", "rights", "jobs", "alive"]
    assert list(findings) == [*place, "tasks", "leases", "workers", "queue", "clock"]


def test_tables_that_are_missing_or_older_or_not_for_this_user_are_found(
    database_url: str, postgres_server: PostgresServer, request: pytest.FixtureRequest
) -> None:
    findings = checkup(database_url, exit_code=1)
    assert verdicts(findings) == {"opens": "bad", "schema": "bad"}
    assert "run raincheck migrate" in findings["schema"]["remedy"]
    in_store(nothing, store=database_url)
    postgres_server.run("CREATE ROLE visitor LOGIN")
    request.addfinalizer(lambda: postgres_server.run("DROP ROLE visitor"))
    request.addfinalizer(lambda: sql(database_url, "DROP OWNED BY visitor"))
    visiting = database_url.replace("postgres@", "visitor@")

    def visit() -> dict[str, str]:
        reported = json.loads(run_now("doctor", "--store", visiting, "--json").stdout)
        return verdicts({finding["name"]: finding for finding in reported["findings"]})

    assert visit() == {"opens": "bad", "rights": "bad"}
    sql(database_url, "GRANT USAGE ON SCHEMA raincheck TO visitor")
    assert visit() == {"opens": "bad"}
    sql(database_url, "GRANT SELECT ON ALL TABLES IN SCHEMA raincheck TO visitor")
    assert visit() == {"rights": "bad"}


def test_another_programs_tables_and_a_newer_schema_end_with_two(database_url: str) -> None:
    in_store(nothing, store=database_url)
    sql(database_url, "INSERT INTO raincheck_schema VALUES (999)")
    done = run_now("doctor", "--store", database_url)
    assert (done.returncode, done.stdout) == (2, "")
    assert "its schema is version 999" in done.stderr


def test_tasks_without_a_live_process_are_found(database_url: str) -> None:
    task = in_store(one_queued, FakeClock(SystemClock().now()), store=database_url)
    findings = checkup(database_url, exit_code=1)
    assert verdicts(findings) == {"alive": "bad"}
    assert findings["alive"]["message"] == "0 processes take jobs, and 1 task waits"
    # One that is alive, and has nothing.
    sql(database_url, "INSERT INTO procrastinate_workers DEFAULT VALUES")
    assert verdicts(checkup(database_url)) == {}
    sql(database_url, "DELETE FROM procrastinate_jobs")
    findings = checkup(database_url)
    assert verdicts(findings) == {"jobs": "warn"}
    name = f"{task.tool.name} (version {task.tool.version}) of {task.namespace!r}"
    assert findings["jobs"]["message"] == f"1 task of {name} waits without a job"
    # What it says to do does it.
    for command in ("pause", "resume"):
        assert run_now("tasks", command, task.id, "--store", database_url).returncode == 0
    assert "jobs" not in verdicts(checkup(database_url))


@pytest.mark.parametrize("is_known", [True, False])
def test_jobs_of_dead_workers_are_found(is_known: bool, database_url: str) -> None:
    in_store(one_queued, FakeClock(SystemClock().now()), store=database_url)
    dead = "INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - interval '1 minute')"
    sql(database_url, dead, HELD)
    if not is_known:
        sql(database_url, "DELETE FROM procrastinate_workers")
    findings = checkup(database_url, exit_code=1)
    assert (findings["jobs"]["message"], findings["jobs"]["verdict"]) == ("dead workers hold 1 job", "bad")
    assert findings["jobs"]["remedy"] == "start a worker: it returns them to the queue"
    sql(database_url, "INSERT INTO procrastinate_workers DEFAULT VALUES")
    assert verdicts(checkup(database_url)) == {"jobs": "warn"}


def connection_to(store: str) -> "psycopg.Connection[Any]":
    """Connect, once the database has noticed that earlier connections were closed."""
    while True:
        with suppress(psycopg.OperationalError):
            return psycopg.connect(store)
        time.sleep(0.05)


def test_a_database_that_is_away_full_or_a_standby_is_bad(own_postgres: PostgresServer) -> None:
    store = with_password(own_postgres.url())
    few = {"max_connections": 12, "superuser_reserved_connections": 3}
    own_postgres.restart(settings=few)
    in_store(nothing, store=store)
    assert verdicts(checkup(store)) == {"connections": "warn"}
    taken = [connection_to(store) for _ in range(8)]
    assert verdicts(checkup(store, exit_code=1)) == {"connections": "bad"}
    taken += [connection_to(store) for _ in range(4)]
    done = run_now("tasks", "ls", "--store", store)
    assert (done.returncode, done.stdout) == (2, "")
    assert "too many clients already" in done.stderr
    assert list(checkup(store, exit_code=1)) == ["opens"]
    for connection in taken:
        connection.close()
    own_postgres.stop()
    findings = checkup(store, exit_code=1)
    assert list(findings) == ["opens"]
    assert "the database can't be reached" in findings["opens"]["message"]
    (own_postgres.data / "standby.signal").touch()
    own_postgres.start(few)
    findings = checkup(store, exit_code=1)
    assert verdicts(findings) == {"writes": "bad", "connections": "warn"}
    assert findings["writes"]["remedy"] == "name the primary in the store's URL"
    assert run_now("tasks", "ls", "--store", store).stdout == "no tasks\n"
    done = run_now("migrate", "--store", f"{store}?schema=other")
    assert (done.returncode, "the database accepts no writes" in done.stderr) == (2, True)


@pytest.mark.parametrize("words", [["tasks", "ls"], ["stats"], ["tasks", "purge", "--yes"], ["doctor"]], ids=" ".join)
@pytest.mark.parametrize(
    ("store", "why"),
    [
        ("postgresql://app:sesame99@127.0.0.1:1/tasks?schema=", "'' can't be the schema of a store"),
        ("postgresql://app:sesame99@[127.0.0.1/tasks", "the URL of the PostgreSQL store can't be parsed"),
    ],
)
def test_an_invalid_url_exits_with_two(words: list[str], store: str, why: str) -> None:
    done = run_now(*words, "--store", store)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr
    assert SECRET not in done.stderr
    assert list(Path.cwd().iterdir()) == []


def test_advice_contains_no_password() -> None:
    assert redact_store_url("tasks.db") == "tasks.db"
    assert redact_store_url("postgresql://app@db:5432/x?schema=mine") == "postgresql://app@db:5432/x?schema=mine"
    assert redact_store_url("postgresql://app:sesame99@db/x") == "postgresql://app:...@db/x"
    assert redact_store_url("postgresql:///x?password=sesame99&schema=a") == "postgresql:///x?password=...&schema=a"
    assert redact_store_url("postgresql://app:ses/ame99@db/x") == "postgresql://..."
