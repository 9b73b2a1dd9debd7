"""From a name to an open store, and that it is closed again."""

import stat
from pathlib import Path

import pytest

from raincheck import open_store
from raincheck.errors import ConfigurationError, StoreUnavailable
from raincheck.stores.base import Store
from raincheck.stores.factory import STORE_VARIABLE, make_store
from raincheck.stores.memory import MemoryStore
from raincheck.stores.sqlite import SqliteStore
from raincheck.testing import FakeClock, StoreHarness

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A state folder of this test's own, and no variable set."""
    monkeypatch.delenv(STORE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "state"


def _is_there(path: Path) -> bool:
    return path.exists()


async def _is_open(store: Store) -> bool:
    try:
        await StoreHarness(store, FakeClock()).create()
    except StoreUnavailable:
        return False
    return True


async def test_a_file_is_opened_as_its_url_says(tmp_path: Path) -> None:
    for synchronous in ("NORMAL", "FULL"):
        store = make_store(f"sqlite:///{tmp_path / 'tasks.db'}?synchronous={synchronous}")
        assert isinstance(store, SqliteStore)
        assert store.synchronous == synchronous


async def test_a_store_is_open_inside_and_closed_after() -> None:
    async with open_store("memory:") as store:
        assert isinstance(store, MemoryStore)
        assert await _is_open(store)
    assert not await _is_open(store)


@pytest.mark.parametrize("name", ["tasks.db", "sqlite:///tasks.db", "memory:"])
async def test_a_store_is_closed_when_the_body_raises(name: str) -> None:
    kept: list[Store] = []

    async def fail_in_the_body() -> None:
        async with open_store(name) as store:
            kept.append(store)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_in_the_body()
    assert not await _is_open(kept[0])


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("tasks.db", "tasks.db"),
        ("sqlite:///tasks.db", "tasks.db"),
        ("my tasks.db", "my tasks.db"),
        ("sqlite:///my%20tasks.db", "my tasks.db"),
    ],
)
async def test_a_file_is_made_where_it_was_named(name: str, path: str, tmp_path: Path) -> None:
    async with open_store(name) as store:
        assert isinstance(store, SqliteStore)
        task = await StoreHarness(store, FakeClock()).create()
    assert (tmp_path / path).is_file()
    async with open_store(name) as store:
        assert await StoreHarness(store, FakeClock()).load(task) == task


async def test_an_absolute_path_is_four_slashes(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/tasks.db"):
        assert (tmp_path / "tasks.db").is_file()


async def test_without_a_name_the_variable_says_which(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(STORE_VARIABLE, "named.db")
    async with open_store():
        assert (tmp_path / "named.db").is_file()


async def test_a_name_goes_before_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORE_VARIABLE, "not a store: at all")
    async with open_store("memory:") as store:
        assert isinstance(store, MemoryStore)


async def test_a_variable_that_means_nothing_is_an_error_and_not_the_default(
    monkeypatch: pytest.MonkeyPatch, state: Path
) -> None:
    for value, message in (("redis://host", "unknown kind 'redis'"), ("  ", "the store's name is empty")):
        monkeypatch.setenv(STORE_VARIABLE, value)
        with pytest.raises(ConfigurationError, match=message):
            async with open_store():
                pass
    assert not _is_there(state)


async def test_an_empty_name_is_no_name_and_does_not_mean_the_default(state: Path) -> None:
    with pytest.raises(ConfigurationError, match="the store's name is empty"):
        async with open_store(""):
            pass
    assert not _is_there(state)


async def test_a_path_may_be_a_path(tmp_path: Path) -> None:
    async with open_store(tmp_path / "tasks.db") as store:
        assert repr(store) == f"SqliteStore({str(tmp_path / 'tasks.db')!r})"


async def test_with_neither_it_is_in_the_users_state_folder_which_nobody_else_may_enter(
    monkeypatch: pytest.MonkeyPatch, state: Path
) -> None:
    monkeypatch.setenv(STORE_VARIABLE, "")
    async with open_store() as store:
        assert await _is_open(store)
    file = state / "raincheck" / "tasks.db"
    assert file.is_file()
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_the_state_folder_may_be_there_already(state: Path) -> None:
    for _ in range(2):
        async with open_store():
            assert (state / "raincheck" / "tasks.db").is_file()


async def test_the_state_folder_is_made_only_where_it_is_used(state: Path) -> None:
    async with open_store("tasks.db"):
        pass
    assert not _is_there(state)


async def test_the_folder_of_a_path_that_somebody_names_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no folder .*: create it first"):
        async with open_store("missing/tasks.db"):
            pass
    assert not (tmp_path / "missing").exists()


async def test_a_state_folder_that_can_not_be_made_is_one_of_our_errors(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")
    with pytest.raises(ConfigurationError, match=r"the folder .* can't be made .*: name a store by RAINCHECK_STORE"):
        async with open_store():
            pass


async def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"is a folder: name a file in it, such as .*tasks\.db"):
        async with open_store(str(tmp_path)):
            pass


def _refusal(name: str) -> str:
    with pytest.raises(ConfigurationError) as refused:
        make_store(name)
    return str(refused.value)


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("postgresql://user:secret@db.example:5432/tasks?password=secret", "postgresql://db.example:5432/tasks"),
        ("postgres://db.example/tasks", "postgresql://db.example/tasks"),
        ("postgresql:///tasks?password=secret", "postgresql:///tasks"),
    ],
)
def test_a_postgresql_store_is_shown_by_where_it_is_and_the_password_stays_out_of_it(name: str, where: str) -> None:
    assert repr(make_store(name)) == f"PostgresStore({where!r})"


@pytest.mark.parametrize("name", ["postgresql://user:hunter[2@host/db", "postgresql://user:hunter2@host℀/db"])
def test_a_broken_postgresql_url_is_one_of_our_errors_and_the_password_stays_out_of_it(name: str) -> None:
    assert "hunter" not in _refusal(name)


def test_making_a_store_opens_nothing(tmp_path: Path) -> None:
    assert isinstance(make_store("tasks.db"), SqliteStore)
    assert not (tmp_path / "tasks.db").exists()
