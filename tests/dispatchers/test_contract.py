"""Both dispatchers pass the dispatcher contract."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from raincheck.dispatchers.procrastinate import dispatcher
from raincheck.engine.worker import dispatch
from raincheck.testing import DispatcherContract
from tests.support.postgres.server import PostgresServer

_numbers = itertools.count(1)

LISTENS = """
SELECT count(*) > 0 FROM pg_stat_activity
WHERE datname = current_database() AND query ILIKE 'LISTEN "procrastinate%' AND state = 'idle'
    AND state_change < now() - INTERVAL '50 ms'
"""
"""Whether a worker has been listening for a while: it starts to listen for each tool, one after the other."""


class TestEmbedded(DispatcherContract):
    def store_url(self, folder: Path) -> str:
        return f"sqlite:///{folder / 'tasks.db'}"


@pytest.fixture(scope="module")
def crashing_server() -> Iterator[PostgresServer]:
    with PostgresServer(fsync=True) as server:
        yield server


class TestProcrastinate(DispatcherContract):
    @pytest.fixture(autouse=True)
    def on_a_database(self, crashing_server: PostgresServer) -> Iterator[None]:
        self.server = crashing_server
        self.database = f"test_{next(_numbers)}"
        self.url = crashing_server.create_database(self.database)
        yield
        crashing_server.drop_database(self.database)

    def store_url(self, folder: Path) -> str:
        del folder
        return self.url

    def count_jobs(self) -> int:
        return self.server.run("SELECT count(*) FROM raincheck.procrastinate_jobs", database=self.database)[0][0]

    def crash_database(self) -> None:
        self.server.kill()
        self.server.start()

    def is_listening(self) -> bool:
        return self.server.run(LISTENS, database=self.database) == [(True,)]

    def stop_polling(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dispatcher, "FETCH_INTERVAL", 3_600.0)
        monkeypatch.setattr(dispatch, "UNSERVED_SECONDS", 3_600.0)
