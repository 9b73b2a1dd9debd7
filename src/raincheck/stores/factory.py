"""Create stores from their names: the one module that knows every implementation."""

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
    """Open the store with this name, a URL or a path, and close it at the end.

    Without a name, use the variable `RAINCHECK_STORE`, else `tasks.db` in this user's state folder.

        async with open_store("tasks.db") as store:
            ...

    Raises:
        ConfigurationError: the name can't be parsed, or can't be used here.
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
async def open_existing_store(name: str | os.PathLike[str] | None = None) -> AsyncGenerator[Store]:
    """Open an existing store to inspect or control its tasks.

    It uses `new_handle`, which does not migrate a file of an older version that a server of that version may be using.

    Raises:
        ConfigurationError, StoreError: it can't be opened.
    """
    store = (await asyncio.to_thread(make_store, name)).new_handle()
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def store_file_exists(path: Path) -> bool:
    """Return whether the store's file exists.

    Raises:
        ConfigurationError: it is a folder, or can't be accessed.
    """
    try:
        if path.is_dir():
            raise ConfigurationError(f"{path} is a folder: name a file in it, such as {path / 'tasks.db'}")
        return path.exists()
    except OSError as error:
        raise ConfigurationError(f"{path} can't be accessed ({error.strerror}): name another store") from error


def check_store_name(name: str | os.PathLike[str] | None) -> None:
    """Check that a value can be the name of a store, without accessing the store.

    Raises:
        ConfigurationError: it can't; the message lists the valid forms.
    """
    if name is None:
        return
    if not isinstance(name, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance] - not every caller is type-checked
        raise ConfigurationError(
            f"a store must be named by a URL or a path, not {name!r}: it is opened when it is used"
        )
    parse_address(os.fspath(name))


def make_store(name: str | os.PathLike[str] | None = None) -> Store:
    """Create the store with this name, not opened yet.

    Raises:
        ConfigurationError: the name can't be parsed, or can't be used here.
    """
    address = resolve_address(name)
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


def resolve_address(name: str | os.PathLike[str] | None = None) -> Address:
    """Return the address of the store with this name, whether or not it exists.

    Raises:
        ConfigurationError: the name can't be parsed.
    """
    if name is None:
        name = os.environ.get(STORE_VARIABLE) or None
    return SqliteAddress(_default_path()) if name is None else parse_address(os.fspath(name))


def _default_path() -> Path:
    return user_state_path("raincheck", appauthor=False) / "tasks.db"


def _make_folder(folder: Path) -> None:
    try:
        # The default folder belongs to raincheck, so it is created if missing. The folder of a path that the user names
        # is not.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"the folder {folder} for the store can't be created ({error.strerror}): name a store in {STORE_VARIABLE}"
        ) from error


def _make_postgres(url: str) -> Store:
    try:
        from raincheck.dispatchers.procrastinate import ProcrastinateDispatcher, ProcrastinateJobQueue
        from raincheck.stores.postgres import PostgresStore, parse_url
    except ImportError as error:
        raise ConfigurationError(
            f"a PostgreSQL store needs {error.name}: install it with pip install 'raincheck[postgres]'"
        ) from error
    target = parse_url(url)
    return PostgresStore(
        url,
        jobs=ProcrastinateJobQueue(target.jobs_schema),
        make_dispatcher=partial(ProcrastinateDispatcher, target.conninfo, target.jobs_schema),
    )
