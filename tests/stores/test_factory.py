"""Creating, opening and closing stores by name."""

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
    """A separate state folder for this test, without the environment variable."""
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


async def test_a_sqlite_url_opens_its_file(tmp_path: Path) -> None:
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
    opened: list[Store] = []

    async def fail_in_the_body() -> None:
        async with open_store(name) as store:
            opened.append(store)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_in_the_body()
    assert not await _is_open(opened[0])


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("tasks.db", "tasks.db"),
        ("sqlite:///tasks.db", "tasks.db"),
        ("my tasks.db", "my tasks.db"),
        ("sqlite:///my%20tasks.db", "my tasks.db"),
    ],
)
async def test_a_file_is_created_at_the_given_path(name: str, path: str, tmp_path: Path) -> None:
    async with open_store(name) as store:
        assert isinstance(store, SqliteStore)
        task = await StoreHarness(store, FakeClock()).create()
    assert (tmp_path / path).is_file()
    async with open_store(name) as store:
        assert await StoreHarness(store, FakeClock()).load(task) == task


async def test_an_absolute_path_has_four_slashes(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/tasks.db"):
        assert (tmp_path / "tasks.db").is_file()


async def test_without_a_name_the_environment_variable_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(STORE_VARIABLE, "named.db")
    async with open_store():
        assert (tmp_path / "named.db").is_file()


async def test_a_name_takes_precedence_over_the_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORE_VARIABLE, "not a store: at all")
    async with open_store("memory:") as store:
        assert isinstance(store, MemoryStore)


async def test_an_invalid_environment_variable_is_an_error(monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    for value, message in (("redis://host", "unknown kind 'redis'"), ("  ", "the store's name is empty")):
        monkeypatch.setenv(STORE_VARIABLE, value)
        with pytest.raises(ConfigurationError, match=message):
            async with open_store():
                pass
    assert not _is_there(state)


async def test_an_empty_name_is_an_error(state: Path) -> None:
    with pytest.raises(ConfigurationError, match="the store's name is empty"):
        async with open_store(""):
            pass
    assert not _is_there(state)


async def test_a_path_object_is_accepted(tmp_path: Path) -> None:
    async with open_store(tmp_path / "tasks.db") as store:
        assert repr(store) == f"SqliteStore({str(tmp_path / 'tasks.db')!r})"


async def test_the_default_store_is_in_the_users_private_state_folder(
    monkeypatch: pytest.MonkeyPatch, state: Path
) -> None:
    monkeypatch.setenv(STORE_VARIABLE, "")
    async with open_store() as store:
        assert await _is_open(store)
    file = state / "raincheck" / "tasks.db"
    assert file.is_file()
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_the_state_folder_may_exist_already(state: Path) -> None:
    for _ in range(2):
        async with open_store():
            assert (state / "raincheck" / "tasks.db").is_file()


async def test_the_state_folder_is_created_only_for_the_default_store(state: Path) -> None:
    async with open_store("tasks.db"):
        pass
    assert not _is_there(state)


async def test_the_folder_of_a_given_path_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no folder .*: create it first"):
        async with open_store("missing/tasks.db"):
            pass
    assert not (tmp_path / "missing").exists()


async def test_a_state_folder_that_can_not_be_created_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")
    with pytest.raises(ConfigurationError, match=r"the folder .* can't be created .*: name a store in RAINCHECK_STORE"):
        async with open_store():
            pass


async def test_a_folder_can_not_be_a_store(tmp_path: Path) -> None:
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
def test_a_postgresql_store_is_displayed_without_its_password(name: str, where: str) -> None:
    assert repr(make_store(name)) == f"PostgresStore({where!r})"


@pytest.mark.parametrize("name", ["postgresql://user:hunter[2@host/db", "postgresql://user:hunter2@host℀/db"])
def test_an_invalid_postgresql_url_is_a_configuration_error_without_the_password(name: str) -> None:
    assert "hunter" not in _refusal(name)


def test_creating_a_store_opens_nothing(tmp_path: Path) -> None:
    assert isinstance(make_store("tasks.db"), SqliteStore)
    assert not (tmp_path / "tasks.db").exists()
