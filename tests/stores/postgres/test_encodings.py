"""Databases of encodings other than UTF8. SQL_ASCII is what `initdb` chooses where no locale is set."""

import asyncio
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import pytest

from raincheck import open_store
from raincheck.core.values import decode
from raincheck.engine import Engine, Settings, TaskContext, Toolbox
from raincheck.errors import StoreError
from raincheck.stores.factory import make_store
from raincheck.stores.postgres import PostgresStore
from raincheck.testing import check_invariants
from raincheck.testing.store_contract.create import CreateContract
from tests.support.postgres.server import PostgresServer

TEXT = "größer 日本 🌧"


@pytest.fixture(scope="module")
def ascii_url(postgres_server: PostgresServer) -> Iterator[str]:
    yield postgres_server.create_database("in_sql_ascii", encoding="SQL_ASCII")
    postgres_server.drop_database("in_sql_ascii")


class TestPostgresStoreInSqlAscii(CreateContract):
    @pytest.fixture(autouse=True)
    def on_a_database(self, ascii_url: str) -> None:
        self.url = ascii_url

    def make_store(self, folder: Path) -> PostgresStore:
        schema = blake2b(bytes(folder), digest_size=8).hexdigest()
        return PostgresStore(f"{self.url}?schema={schema}")


@pytest.mark.anyio
@pytest.mark.parametrize("is_direct", [True, False], ids=["direct-start", "worker"])
async def test_any_text_round_trips_in_a_database_of_encoding_sql_ascii(
    ascii_url: str, monkeypatch: pytest.MonkeyPatch, *, is_direct: bool
) -> None:
    # It becomes part of the history: workers are named after their machines.
    monkeypatch.setattr("socket.gethostname", lambda: "größe")
    toolbox, settings = Toolbox(), Settings(park_after=0.05)

    @toolbox.tool(name="größe")
    async def ask(what: str, task: TaskContext) -> str:
        await task.progress(1, 2, what)
        reply = await task.elicit(what, {"type": "object"})
        return await task.step(what, "{} {}".format, what, reply.value)

    url = f"{ascii_url}?schema=büro_{is_direct}"
    async with (
        open_store(url) as caller_store,
        open_store(url) as other_store,
        Engine(caller_store, toolbox, namespace="büro", settings=settings, works=is_direct) as caller,
        Engine(other_store, toolbox, namespace="büro", settings=settings, works=not is_direct),
    ):
        task = await caller.submit("größe", {"what": TEXT}, idempotency_key=TEXT)
        view = await caller.wait(task.id, until=lambda task: task.open_inputs > 0)
        assert TEXT in str(decode(view.inputs[0].request))
        await caller.answer(task.id, {view.inputs[0].key: {"action": "accept", "content": {TEXT: TEXT}}})
        view = await caller.wait(task.id)
        assert view.outcome is not None
        assert decode(view.outcome) == f"{TEXT} {{{TEXT!r}: {TEXT!r}}}"
        assert (view.task.namespace, view.task.tool.name) == ("büro", "größe")
        assert (await caller.submit("größe", {"what": TEXT}, idempotency_key=TEXT)).id == task.id
        await check_invariants(caller_store)


@pytest.mark.anyio
async def test_a_character_that_the_encoding_lacks_is_an_error_with_advice(postgres_server: PostgresServer) -> None:
    url = await asyncio.to_thread(postgres_server.create_database, "in_latin1", encoding="LATIN1")
    store = await asyncio.to_thread(make_store, url)
    with pytest.raises(StoreError, match="createdb -E UTF8 -T template0"):
        await store.open()
    await asyncio.to_thread(postgres_server.drop_database, "in_latin1")
