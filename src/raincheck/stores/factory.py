"""Where a store's name becomes a store: the one place that knows them all."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import assert_never

from platformdirs import user_state_path

from raincheck.errors import ConfigurationError
from raincheck.stores.base import Store
from raincheck.stores.url import Address, MemoryAddress, PostgresAddress, SqliteAddress, parse_address

STORE_VARIABLE = "RAINCHECK_STORE"


@asynccontextmanager
async def open_store(name: str | os.PathLike[str] | None = None) -> AsyncGenerator[Store]:
    """Open the store of this name, a URL or a path, and close it at the end.

    Without a name it is the one in the variable `RAINCHECK_STORE`, else `tasks.db` in this user's state folder.

        async with open_store("tasks.db") as store:
            ...

    Raises:
        ConfigurationError: the name can't be understood, or can't be used here.
        StoreError: the store can't be opened.
    """
    # Finding the default folder and importing a store both read the disk.
    store = await asyncio.to_thread(make_store, name)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def open_twin(name: str | os.PathLike[str] | None = None) -> AsyncGenerator[Store]:
    """Open the store of this name for one who only looks, or steers.

    A twin leaves a file of an older version alone, which a server of that version may be using.

    Raises:
        ConfigurationError, StoreError: it can't be opened.
    """
    store = (await asyncio.to_thread(make_store, name)).twin()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def is_there(path: Path) -> bool:
    """Whether there is a file of a store.

    Raises:
        ConfigurationError: it is a folder, or can't be looked at.
    """
    try:
        if path.is_dir():
            raise ConfigurationError(f"{path} is a folder: name a file in it, such as {path / 'tasks.db'}")
        return path.exists()
    except OSError as error:
        raise ConfigurationError(f"{path} can't be looked at ({error.strerror}): name another store") from error


def check_store_name(name: str | os.PathLike[str] | None) -> None:
    """Refuse what can't be the name of a store, without looking for it.

    Raises:
        ConfigurationError: it says what can.
    """
    if name is None:
        return
    if not isinstance(name, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance] - not every caller is type-checked
        raise ConfigurationError(
            f"a store is named by a URL or a path, and opened where it is needed; this is {name!r}"
        )
    parse_address(os.fspath(name))


def make_store(name: str | os.PathLike[str] | None = None) -> Store:
    """The store of this name, not opened yet.

    Raises:
        ConfigurationError: the name can't be understood, or can't be used here.
    """
    address = find_address(name)
    match address:
        case MemoryAddress():
            from raincheck.stores.memory import MemoryStore

            return MemoryStore()
        case SqliteAddress(path, synchronous):
            from raincheck.stores.sqlite import SqliteStore

            if path == _default_path():
                _make_folder(path.parent)
            return SqliteStore(path, synchronous=synchronous)
        case PostgresAddress(url):
            return _make_postgres(url)
        case _:
            assert_never(address)


def find_address(name: str | os.PathLike[str] | None = None) -> Address:
    """Where the store of this name is, or would be.

    Raises:
        ConfigurationError: the name can't be understood.
    """
    if name is None:
        name = os.environ.get(STORE_VARIABLE) or None
    return SqliteAddress(_default_path()) if name is None else parse_address(os.fspath(name))


def _default_path() -> Path:
    return user_state_path("raincheck", appauthor=False) / "tasks.db"


def _make_folder(folder: Path) -> None:
    try:
        # Ours, so it is made where it is missing; the folder of a path that somebody names is not.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"the folder {folder} for the store can't be made ({error.strerror}): name a store by {STORE_VARIABLE}"
        ) from error


def _make_postgres(url: str) -> Store:
    try:
        from raincheck.dispatchers.procrastinate import ProcrastinateDispatcher, ProcrastinateJobs
        from raincheck.stores.postgres import PostgresStore, parse_url
    except ImportError as error:
        raise ConfigurationError(
            f"a PostgreSQL store needs {error.name}: install it with pip install 'raincheck[postgres]'"
        ) from error
    target = parse_url(url)
    return PostgresStore(
        url,
        jobs=ProcrastinateJobs(target.jobs_schema),
        make_dispatcher=partial(ProcrastinateDispatcher, target.conninfo, target.jobs_schema),
    )
