"""Secrets in a file: created once, read without a lock, and never shown."""

import asyncio
import logging
import re
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from raincheck.core.lifecycle import Phase
from raincheck.errors import InvalidValue, StoreFull, StoreUnavailable
from raincheck.stores.sqlite import SqliteStore
from raincheck.stores.sqlite.connection import connect, prepare_file
from raincheck.stores.sqlite.migrate import shipped_migrations
from raincheck.stores.sqlite.writes import QUERIES
from raincheck.testing import check_invariants
from raincheck.testing.harness import EVERYTHING
from tests.support.stores.older_files import write_older_file

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, lock_timeout=0.05)
    await store.open()
    yield store
    await store.close()


ASK = """
import asyncio, sys
from raincheck.stores.sqlite import SqliteStore

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for number in range(20):
        print((await store.get_or_create_secret(f"key {number}")).hex())
    await store.close()

asyncio.run(main())
"""


async def test_concurrent_first_requests_of_processes_get_the_same_secret(path: Path) -> None:
    pipe = asyncio.subprocess.PIPE
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", ASK, str(path), stdin=pipe, stdout=pipe, stderr=pipe)
        for _ in range(6)
    ]
    for process in processes:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
    answers = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    assert [errors for _, errors in answers] == [b""] * 6
    secrets, *others = (lines.split() for lines, _ in answers)
    assert len(set(secrets)) == 20
    assert others == [secrets] * 5
    store = SqliteStore(path)
    await store.open()
    assert [(await store.get_or_create_secret(f"key {number}")).hex().encode() for number in range(20)] == secrets
    await store.close()


class LateConnection(sqlite3.Connection):
    """Another process creates the secret just before this one starts to write."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if sql == "BEGIN IMMEDIATE" and not self.others:
            self.others.append(b"o" * 32)
            with closing(connect(self.path, 5)) as other:
                other.execute(QUERIES["insert_secret"], ("key", self.others[0]))
        return super().execute(sql, parameters)

    path: str
    others: list[bytes]


async def test_a_secret_created_by_another_process_meanwhile_is_returned(path: Path) -> None:
    await asyncio.to_thread(lambda: prepare_file(path, connect, 5, shipped_migrations()))
    others: list[bytes] = [b"not yet"]
    factory = type("Late", (LateConnection,), {"path": str(path), "others": others})

    def connect_late(name: str, timeout: float) -> sqlite3.Connection:
        return sqlite3.connect(name, timeout=timeout, isolation_level=None, factory=factory)

    store = SqliteStore(path, connect=connect_late)
    await store.open()
    others.clear()
    assert await store.get_or_create_secret("key") == b"o" * 32 == others[0]
    await store.close()


async def test_a_secret_that_exists_is_read_while_another_process_writes(path: Path, store: SqliteStore) -> None:
    secret = await store.get_or_create_secret("key")

    def begin_write() -> sqlite3.Connection:
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        return other

    writer = await asyncio.to_thread(begin_write)
    assert await store.get_or_create_secret("key") == secret
    with pytest.raises(StoreUnavailable, match="locked"):
        await store.get_or_create_secret("another")
    await asyncio.to_thread(writer.close)
    assert await store.get_or_create_secret("another") == await store.get_or_create_secret("another") != secret


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_an_older_file_gets_secrets_and_keeps_its_tasks(path: Path, version: int) -> None:
    await asyncio.to_thread(write_older_file, path, version)
    store = SqliteStore(path)
    await store.open()
    assert await store.count_live(EVERYTHING) == {Phase.QUEUED: 3}
    secret = await store.get_or_create_secret("key")
    await check_invariants(store)
    await store.close()
    await store.open()
    assert await store.get_or_create_secret("key") == secret
    await store.close()


@pytest.mark.parametrize("secret", [b"", b"k" * 31, b"k" * 33, None, "k" * 32])
async def test_the_schema_accepts_only_valid_secrets(path: Path, store: SqliteStore, secret: object) -> None:
    await store.get_or_create_secret("key")

    def insert() -> None:
        with closing(connect(str(path), 5)) as connection:
            connection.execute(QUERIES["insert_secret"], ("other", secret))

    with pytest.raises(sqlite3.IntegrityError):
        await asyncio.to_thread(insert)


class FullConnection(sqlite3.Connection):
    """The disk is full after a secret has been written."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        cursor = super().execute(sql, parameters)
        if sql == QUERIES["insert_secret"]:
            self.made.append(parameters["bytes"])
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return cursor

    made: list[bytes]


def shows(text: str, secret: bytes) -> bool:
    """Return whether the text shows four consecutive bytes of the secret, printed or in hexadecimal."""
    parts = [secret[start : start + 4] for start in range(len(secret) - 3)]
    return any(repr(part)[2:-1] in text or part.hex() in text.lower() for part in parts)


def test_the_check_for_leaked_secrets_finds_them() -> None:
    secret = bytes(range(100, 132))
    assert all(shows(text, secret) for text in (repr(secret), f"... {secret.hex().upper()}", repr(secret[5:9])))
    assert not shows(repr(bytes(32)), secret)


async def test_an_error_while_creating_a_secret_does_not_show_it(path: Path) -> None:
    made: list[bytes] = []
    factory = type("Full", (FullConnection,), {"made": made})
    store = SqliteStore(path, connect=partial(_connect_with, factory))
    await store.open()
    with pytest.raises(StoreFull) as refused:
        await store.get_or_create_secret("key")
    error: BaseException | None = refused.value
    while error is not None:
        assert not any(shows(f"{error} {error!r}", secret) for secret in made)
        error = error.__cause__
    assert made
    with pytest.raises(InvalidValue) as refused_name:
        await store.get_or_create_secret("")
    assert "secret's name" in str(refused_name.value)
    await store.close()


def _connect_with(factory: type[sqlite3.Connection], path: str, timeout: float) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=timeout, isolation_level=None, factory=factory)


async def test_no_log_shows_a_secret(store: SqliteStore, caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    caplog.set_level(logging.DEBUG)
    # With this, the loop logs every callback as slow, with its arguments.
    loop.slow_callback_duration = 0
    loop.set_debug(True)
    secrets = [await store.get_or_create_secret(f"key {number}") for number in range(3)]
    secrets += [await store.get_or_create_secret("key 0"), await store.get_or_create_secret("key 0")]
    await asyncio.sleep(0)
    loop.set_debug(False)
    assert re.search(r"Executing .*ThreadCall.* took", caplog.text)
    assert not any(shows(caplog.text, secret) for secret in secrets)
