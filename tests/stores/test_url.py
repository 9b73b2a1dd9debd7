"""Parsing store names, and the errors for invalid ones."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raincheck.errors import ConfigurationError
from raincheck.stores.url import MemoryAddress, PostgresAddress, SqliteAddress, Synchronous, parse_address


@pytest.mark.parametrize("text", ["memory:", "memory://", "MEMORY:", "Memory://"])
def test_memory(text: str) -> None:
    assert parse_address(text) == MemoryAddress()


FILES = [
    ("tasks.db", "tasks.db"),
    ("./tasks.db", "tasks.db"),
    ("../tasks.db", "../tasks.db"),
    ("data/tasks.db", "data/tasks.db"),
    ("/var/lib/tasks.db", "/var/lib/tasks.db"),
    ("my tasks.db", "my tasks.db"),
    ("tâches.db", "tâches.db"),
    ("100%25.db", "100%25.db"),
    ("what?.db#1", "what?.db#1"),
    ("memory", "memory"),
    ("sqlite", "sqlite"),
    ("sqlite:///tasks.db", "tasks.db"),
    ("sqlite:///data/tasks.db", "data/tasks.db"),
    ("sqlite:///../tasks.db", "../tasks.db"),
    ("sqlite:////var/lib/tasks.db", "/var/lib/tasks.db"),
    ("SQLite:///Tasks.DB", "Tasks.DB"),
    ("sqlite:///my%20tasks.db", "my tasks.db"),
    ("sqlite:///my tasks.db", "my tasks.db"),
    ("sqlite:///100%2525.db", "100%25.db"),
    ("sqlite:///what%3F.db%231", "what?.db#1"),
    ("sqlite:///t%C3%A2ches.db", "tâches.db"),
    ("sqlite:///C:/data/tasks.db", "C:/data/tasks.db"),
]


@pytest.mark.parametrize(("text", "path"), FILES, ids=[text for text, _ in FILES])
def test_a_file(text: str, path: str) -> None:
    assert parse_address(text) == SqliteAddress(Path(path))


@pytest.mark.parametrize("text", ["C:\\data\\tasks.db", "c:/data/tasks.db", "C:tasks.db"])
def test_a_windows_drive_is_not_a_scheme(text: str) -> None:
    assert parse_address(text) == SqliteAddress(Path(text))


def test_a_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse_address("~/tasks.db") == SqliteAddress(tmp_path / "tasks.db")
    assert parse_address("sqlite:///~/tasks.db") == SqliteAddress(tmp_path / "tasks.db")
    assert parse_address("data/~/tasks.db") == SqliteAddress(Path("data/~/tasks.db"))


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://host/db",
        "postgres://host/db",
        "PostgreSQL://user:secret@host:5432/db?sslmode=require",
        "postgresql:///db",
    ],
)
def test_postgresql_keeps_its_whole_url(text: str) -> None:
    assert parse_address(text) == PostgresAddress(text)


@pytest.mark.parametrize(
    ("text", "synchronous"),
    [
        ("sqlite:///tasks.db", "FULL"),
        ("sqlite:///tasks.db?synchronous=FULL", "FULL"),
        ("sqlite:///tasks.db?synchronous=NORMAL", "NORMAL"),
        ("sqlite:///tasks.db?synchronous=normal", "NORMAL"),
    ],
)
def test_the_sync_mode_is_set_in_the_url(text: str, synchronous: Synchronous) -> None:
    assert parse_address(text) == SqliteAddress(Path("tasks.db"), synchronous)


REFUSED = [
    ("", "the store's name is empty: name one, such as memory:"),
    ("  \t\n", "the store's name is empty: name one, such as memory:"),
    ("memory:tasks", "write just 'memory:'"),
    ("memory://host", "write just 'memory:'"),
    ("memory:///tasks", "write just 'memory:'"),
    ("memory: ", "write just 'memory:'"),
    ("sqlite:", "write three slashes and a relative path (sqlite:///tasks.db)"),
    ("sqlite:tasks.db", "write three slashes and a relative path (sqlite:///tasks.db)"),
    ("sqlite:/tasks.db", "write three slashes"),
    ("sqlite:/var/lib/tasks.db", "or four for an absolute one (sqlite:////var/lib/tasks.db)"),
    ("sqlite://tasks.db", "write three slashes"),
    ("sqlite://host/tasks.db", "write three slashes"),
    ("sqlite://user:secret@host/tasks.db", "write three slashes"),
    ("sqlite:///", "names no file: write sqlite:///tasks.db"),
    (
        "sqlite:///tasks.db?mode=ro",
        "has unsupported options: a SQLite store takes only synchronous=FULL (the default) or synchronous=NORMAL",
    ),
    ("sqlite:///tasks.db?", "takes only synchronous=FULL (the default) or synchronous=NORMAL"),
    ("sqlite:///tasks.db?synchronous=OFF", "takes only synchronous=FULL (the default) or synchronous=NORMAL"),
    (
        "sqlite:///tasks.db?synchronous=NORMAL&mode=ro",
        "takes only synchronous=FULL (the default) or synchronous=NORMAL",
    ),
    ("sqlite:///tasks.db#one", "remove it, or write # as %23"),
    ("sqlite:///?mode=ro", "names no file: write sqlite:///tasks.db"),
    ("mysql://host/db", "an unknown kind 'mysql': use one of memory:, tasks.db, sqlite:///tasks.db"),
    ("redis:", "an unknown kind 'redis': use one of"),
    ("file:tasks.db", "an unknown kind 'file': use one of"),
    ("https://host/tasks.db", "an unknown kind 'https': use one of"),
    ("postgresql+asyncpg://host/db", "an unknown kind 'postgresql+asyncpg': use one of"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[repr(text) for text, _ in REFUSED])
def test_the_error_for_an_invalid_name_says_what_to_write(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_address(text)
    assert message in str(refused.value)


def test_the_error_for_an_unknown_user_says_what_to_write() -> None:
    with pytest.raises(ConfigurationError):
        parse_address("~nobody-of-that-name/tasks.db")


@pytest.mark.parametrize("text", ["sqlite://[/tasks.db", "sqlite://[host/tasks.db", "sqlite://℀/tasks.db"])
def test_the_error_for_a_broken_url_says_what_to_write(text: str) -> None:
    with pytest.raises(ConfigurationError, match="write three slashes"):
        parse_address(text)


@pytest.mark.parametrize("text", [":memory:", "sqlite://:memory:", "sqlite:///:memory:"])
def test_sqlites_name_for_memory_is_refused_with_the_right_one(text: str) -> None:
    with pytest.raises(ConfigurationError, match="memory:"):
        parse_address(text)


@pytest.mark.parametrize("text", ["tasks\0.db", "sqlite:///tasks%00.db"])
def test_an_invalid_file_name_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_address(text)


@pytest.mark.parametrize("character", ["\t", "\n", "\r", "\x1b"])
@pytest.mark.parametrize("before", ["", "sqlite:///"])
def test_a_control_character_in_a_name_is_refused(before: str, character: str) -> None:
    with pytest.raises(ConfigurationError, match="the store's name has control characters: name one such as"):
        parse_address(f"{before}my{character}tasks.db")


@pytest.mark.parametrize(
    "text", ["mysql://user:secret@host/db", "postgresql+asyncpg://user:secret@host/db", "postgresq://user:secret@host/"]
)
def test_a_password_in_an_invalid_url_is_not_repeated(text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_address(text)
    assert "secret" not in str(refused.value)


def test_an_address_does_not_show_its_password_when_it_is_printed() -> None:
    assert "secret" not in repr(parse_address("postgresql://user:secret@host/db"))


PREFIXES = st.sampled_from(["", "~", "memory:", "sqlite:", "sqlite://", "sqlite:///", "postgresql://", "redis://"])
TEXTS = st.text(max_size=10) | st.text(st.sampled_from("[]@:/%?#~a0\0\t "), max_size=10)


@given(PREFIXES, TEXTS)
def test_any_text_is_a_store_or_a_configuration_error(prefix: str, text: str) -> None:
    with suppress(ConfigurationError):
        assert isinstance(parse_address(prefix + text), MemoryAddress | SqliteAddress | PostgresAddress)
