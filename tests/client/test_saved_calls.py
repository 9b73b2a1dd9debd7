"""Slips and the book: a caller that is gone left behind what another one needs."""

import asyncio
import json
import logging
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

from raincheck.client import SavedCalls, TaskCancelled, TaskClient, TaskRef
from raincheck.errors import ConfigurationError, InvalidValue
from tests.support.client import killable_caller
from tests.support.client.callers import ON_ALL, begin, calling, text_of
from tests.support.client.example_server import Server
from tests.support.client.server_processes import Site

pytestmark = pytest.mark.anyio

SLIP = TaskRef(server="calls", task_id="1", tool="add", tier="2026-07-28", taken_at="2026-01-01T00:00:00+00:00")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(tmp_path)
    try:
        yield site
    finally:
        await site.kill()


@pytest.fixture
def book(tmp_path: Path) -> SavedCalls:
    return SavedCalls(tmp_path / "calls.book")


@ON_ALL
async def test_a_task_is_in_the_book_until_its_result_is_fetched(book: SavedCalls, tier: str) -> None:
    server = Server()
    async with calling(server, tier, saved_calls=book) as client:
        handle = await begin(client, "pass_gate")
        assert await book.list_refs() == [handle.task_ref]
        assert await book.find(str(handle.task_id)) == handle.task_ref
        assert await book.find("another") is None
        server.gate.open.set()
        await handle.result()
        assert await book.list_refs() == []


async def test_what_is_answered_at_once_is_not_in_the_book(book: SavedCalls) -> None:
    async with calling(Server(), saved_calls=book) as client:
        await client.call("add_at_once", {"a": 1, "b": 2})
        assert await book.list_refs() == []


@ON_ALL
async def test_another_client_goes_on_with_what_is_in_the_book(book: SavedCalls, tier: str) -> None:
    server = Server()
    async with server.tasks.running():
        async with calling(server, tier, saved_calls=book) as first:
            begun = await begin(first, "pass_gate")
        async with calling(server, tier, saved_calls=book) as second:
            (handle,) = await second.open_calls()
            assert handle.task_id == begun.task_id
            server.gate.open.set()
            assert text_of(await handle.result()) == "through"
            assert await second.open_calls() == []


async def test_a_task_that_failed_or_was_cancelled_is_crossed_out(book: SavedCalls) -> None:
    async with calling(Server(), saved_calls=book) as client:
        with pytest.raises(MCPError):
            await (await begin(client, "break_down")).result()
        handle = await begin(client, "wait")
        await handle.cancel()
        with pytest.raises(TaskCancelled):
            await handle.result()
        assert await book.list_refs() == []


async def test_each_server_has_its_own_slips_in_a_book(book: SavedCalls) -> None:
    for server, task_id in (("a", "1"), ("b", "1"), ("a", "2")):
        await book.add(TaskRef(server=server, task_id=task_id, tool="add", tier="plain"))
    assert [slip.task_id for slip in await book.list_refs("a")] == ["1", "2"]
    assert [slip.server for slip in await book.list_refs()] == ["a", "b", "a"]
    await book.remove(TaskRef(server="a", task_id="1", tool="add", tier="plain"))
    assert [(slip.server, slip.task_id) for slip in await book.list_refs()] == [("b", "1"), ("a", "2")]


async def test_a_slip_is_a_line_of_json_and_comes_back_as_it_was() -> None:
    slip = TaskRef(server="calls", task_id="1", tool="añadir", tier="plain", tools={"wait": "task_wait"})
    assert TaskRef.load(slip.dump()) == slip
    assert json.loads(SLIP.dump())["task_id"] == "1"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"server": 1, "task_id": "1", "tool": "add", "tier": "plain"}',
        '{"server": "a", "task_id": "1", "tool": "add", "tier": "2027-01-01"}',
        '{"server": "a", "task_id": "1", "tool": "add", "tier": ["plain"]}',
        '{"server": "a", "task_id": "1", "tool": "add", "tier": "plain", "tools": 7}',
        '{"server": "a", "task_id": "1", "tool": "add", "tier": "plain", "tools": {"wait": 7}}',
        '{"server": "a", "task_id": "1", "tool": "add", "tier": "plain", "more": 7}',
    ],
)
async def test_what_is_no_slip_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="is not a task reference"):
        TaskRef.load(text)


async def test_a_slip_that_can_not_be_read_hides_no_others(book: SavedCalls, caplog: pytest.LogCaptureFixture) -> None:
    await book.add(SLIP)
    with closing(sqlite3.connect(book.path)) as file:
        file.execute("""INSERT INTO slips VALUES ('2', 'calls', '{"of": "tomorrow"}')""")
        file.commit()
    with caplog.at_level(logging.ERROR):
        assert await book.list_refs() == [SLIP]
    assert "can't be read" in caplog.text


async def test_a_book_is_its_owners_alone(book: SavedCalls) -> None:
    assert await book.list_refs() == []
    assert not book.path.exists()
    for _ in range(2):
        await book.add(SLIP)
        assert book.path.stat().st_mode & 0o777 == 0o600
        book.path.chmod(0o644)


def contents_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


async def test_a_file_that_is_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "tasks.db")) as file:
        file.execute("CREATE TABLE tasks (id TEXT)")
        file.commit()
    (tmp_path / "letter").write_text("Dear Ada, " * 100)
    before = contents_of(tmp_path)
    for name in before:
        with pytest.raises(ConfigurationError, match=name):
            await SavedCalls(tmp_path / name).add(SLIP)
    assert contents_of(tmp_path) == before
    with pytest.raises(ConfigurationError, match="can't be used"):
        await SavedCalls(tmp_path / "nowhere" / "calls.book").add(SLIP)


async def test_a_task_that_can_not_be_written_down_is_told_with_its_slip(tmp_path: Path) -> None:
    server = Server()
    async with calling(server, saved_calls=SavedCalls(tmp_path / "nowhere" / "calls.book")) as client:
        with pytest.raises(ConfigurationError) as raised:
            await client.call("pass_gate")
        (note,) = raised.value.__notes__
        slip = TaskRef.load(note[note.index("'") + 1 : note.rindex("'")])
        server.gate.open.set()
        await server.gate.begun.wait()
        handle = client.resume(slip)
        # That it can't be crossed out is no reason to lose it.
        assert text_of(await handle.result()) == "through"


async def test_without_a_book_there_are_no_open_calls_to_ask_for() -> None:
    async with calling(Server()) as client:
        with pytest.raises(ConfigurationError, match="saves no calls"):
            await client.open_calls()


async def test_a_server_without_an_address_needs_a_name_in_a_book(book: SavedCalls) -> None:
    with pytest.raises(ConfigurationError, match="name="):
        TaskClient(lambda: "http://127.0.0.1:1/mcp", saved_calls=book)
    assert TaskClient(lambda: "http://127.0.0.1:1/mcp", saved_calls=book, name="reports").name == "reports"


async def test_no_secret_of_an_address_gets_into_a_book() -> None:
    assert (
        TaskClient("https://ada:secret@example.com:8443/mcp?key=secret#secret").name == "https://example.com:8443/mcp"
    )
    program = StdioServerParameters(command="python", args=["my server.py"], env={"TOKEN": "secret"})
    assert TaskClient(program).name == "python 'my server.py'"
    assert TaskClient(Server().mcp).name == "calls"


async def run(*arguments: object) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, killable_caller.__file__, *map(str, arguments), stdout=asyncio.subprocess.PIPE
    )


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_caller_that_was_killed_finds_its_task_again_and_gets_the_result(
    site: Site, book: SavedCalls, mode: str
) -> None:
    await site.start()
    caller = await run(book.path, site.url, mode, "begin")
    assert caller.stdout is not None
    task_id = (await caller.stdout.readline()).decode().strip()
    caller.kill()
    assert await caller.wait() == -signal.SIGKILL
    await kill_server_too(site)
    again = await run(book.path, site.url, mode, "go-on")
    said, _ = await again.communicate()
    assert said.decode().strip() == f"{task_id} {[f'step-{number}' for number in range(4)]}"
    assert await book.list_refs() == []


async def kill_server_too(site: Site) -> None:
    await site.kill()
    await site.start()


async def test_processes_share_a_book(site: Site, book: SavedCalls) -> None:
    await site.start()
    kept = TaskRef(server="elsewhere", task_id="1", tool="add", tier="plain")
    await book.add(kept)
    callers = [await run(book.path, site.url, "auto", "many", name) for name in ("a", "bb", "ccc")]
    results = [(await caller.communicate())[0].decode().split() for caller in callers]
    for length, said in enumerate(results, start=1):
        assert said[1::2] == [str(number + length) for number in range(20)]
    assert len({task_id for said in results for task_id in said[::2]}) == 60
    assert await book.list_refs() == [kept]
