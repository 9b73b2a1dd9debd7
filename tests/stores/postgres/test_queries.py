"""Every PostgreSQL query uses an index, and is named, commented and used."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast, get_args

import psycopg
import pytest
from psycopg import _queries as driver

from raincheck import Engine, TaskContext, Toolbox, open_store
from raincheck.stores import sql_store
from raincheck.stores.factory import make_store
from raincheck.stores.postgres import rows
from raincheck.stores.postgres.rows import QUERIES
from raincheck.stores.requests import ListKind
from tests.support.postgres.server import PostgresServer

PACKAGE = Path(rows.__file__).parent

MANY = """
INSERT INTO tasks (
    id, namespace, owner, tool, tool_version, created_at, priority, retry, keep, updated_at, phase, version, fence,
    failures, pausing, signals, open_inputs, entries, is_error, finished_at, expires_at
)
SELECT 'task' || n, 'space' || n % 7, 'owner' || n % 900, 'tool' || n % 5, '1', n, 0, '{}', 1, n, 'completed', 1, 1,
    0, 0, 0, 0, 1, 0, n, n + 1000000
FROM generate_series(1, 20000) AS n
"""
REST = """
INSERT INTO payloads SELECT pk, 'arguments', 'x' FROM tasks;
INSERT INTO history SELECT pk, 1, 1, 'create', NULL, 'queued', 0, 'me', NULL, NULL FROM tasks;
INSERT INTO steps (task_pk, name, occurrence, fingerprint, result, attempt, finished_at)
SELECT pk, 'a', 0, 'f', 'x', 1, 1 FROM tasks;
INSERT INTO inputs (task_pk, key, kind, request, asked_at, attempt) SELECT pk, 'a', 'k', 'x', 1, 1 FROM tasks;
INSERT INTO artifacts (task_pk, name, content, kept_at) SELECT pk, 'a', 'x', 1 FROM tasks;
ANALYZE
"""
LISTS = {"tools", "versions", "ids", "phases", "only", "news"}
TEXTS = {
    "id",
    "namespace",
    "owner",
    "tool",
    "key",
    "name",
    "parent_id",
    "channel",
    "phase",
    "state",
    "subject",
    "tool_version",
}
SMALL = {"lines", "secrets", "durations", "definitions"}
"""Tables of a few rows, which may be read whole."""


@pytest.fixture(scope="module")
def connection(postgres_server: PostgresServer) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a database with many ended tasks."""
    url = postgres_server.create_database("plans")

    async def make() -> None:
        store = make_store(url)
        await store.open()
        await store.close()

    asyncio.run(make())
    with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute("SET search_path TO raincheck")
        connection.execute(MANY)
        connection.execute(REST)
        yield connection
    postgres_server.drop_database("plans")


def value_of(parameter: str) -> object:
    if parameter in LISTS:
        return ["task1"]
    if parameter == "fences":
        return [1]
    if parameter in ("enters", "serves"):
        return True
    return "task1" if parameter in TEXTS or parameter.startswith("entry_") or parameter.endswith("_key") else 5


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


@pytest.mark.parametrize(
    "name", [name for name in QUERIES if re.search("SELECT|UPDATE|DELETE", QUERIES[name]) and "insert" not in name]
)
def test_no_query_scans_a_large_table(connection: psycopg.Connection[Any], name: str) -> None:
    text = QUERIES[name]
    values: Any = {found: value_of(found) for found in re.findall(r"%\((\w+)\)s", text)}
    values |= {
        "entry_seq": 1,
        "entry_at": 1,
        "entry_attempt": 1,
        "entry_detail": b"x",
        "outcome": b"x",
        "variables": b"x",
    }
    values |= {
        "arguments": b"x",
        "caller": b"x",
        "bytes": b"x",
        "body": b"x",
        "progress_done": 1.0,
        "progress_total": 1.0,
        "counts": "x",
    }
    if not re.search(r"%\(", text):
        values = tuple([b"x"] * text.count("%s")) or None
        if name in ("answer_input", "put_artifact"):
            values = (b"x", 1, 1, "a") if name == "answer_input" else (1, "a", b"x", 1)
    cursor = connection.execute(cast("Any", f"EXPLAIN (FORMAT JSON) {text}"), values)
    (((top,),),) = cursor.fetchall()
    read_whole = {
        node["Relation Name"]
        for node in nodes(top["Plan"])
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] not in SMALL
    }
    assert not read_whole, json.dumps(top["Plan"], indent=1)[:3_000]


@pytest.mark.anyio
async def test_the_driver_caches_every_statement_of_a_tasks_life(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver caches only short statements with few parameters. Parsing the rest is as slow as running it."""
    parsed_anew: list[bytes] = []
    parse_anew = driver._query2pg_nocache  # pyright: ignore[reportPrivateUsage]

    def parse(query: bytes, encoding: str) -> Any:
        parsed_anew.append(query)
        return parse_anew(query, encoding)

    monkeypatch.setattr(driver, "_query2pg_nocache", parse)
    tools = Toolbox()

    @tools.tool
    async def work(task: TaskContext) -> str:
        return await task.step("a", str.upper, "a")

    async with open_store(database_url) as store, Engine(store, tools) as engine:
        assert (await engine.wait((await engine.submit("work")).id)).outcome == b'"A"'
    assert parsed_anew == []


def test_every_query_has_a_name_a_comment_and_a_statement() -> None:
    blocks = (PACKAGE / "queries.sql").read_text().split("-- name: ")[1:]
    assert len(blocks) == len(QUERIES)
    for block in blocks:
        name, sentence, *_ = block.splitlines()
        assert re.fullmatch(r"-- [A-Z].*", sentence), name


def test_every_query_is_used() -> None:
    code = "".join(file.read_text() for file in (*PACKAGE.glob("*.py"), Path(sql_store.__file__)))
    assert {name for name in QUERIES if f'"{name}"' not in code} == set(get_args(ListKind)), (
        "those are named by queries"
    )
