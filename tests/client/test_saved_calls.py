"""Tests for task references and saved calls: another process can resume the tasks of a lost caller."""

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
from tests.support.client.callers import ON_ALL_PROTOCOLS, open_client, start_task, text_of
from tests.support.client.example_server import ExampleServer
from tests.support.client.server_processes import ServerProcess

pytestmark = pytest.mark.anyio

TASK_REF = TaskRef(server="calls", task_id="1", tool="add", tier="2026-07-28", taken_at="2026-01-01T00:00:00+00:00")


@pytest.fixture
async def server_process(tmp_path: Path) -> AsyncIterator[ServerProcess]:
    server_process = ServerProcess(tmp_path)
    try:
        yield server_process
    finally:
        await server_process.kill()


@pytest.fixture
def saved_calls(tmp_path: Path) -> SavedCalls:
    return SavedCalls(tmp_path / "calls.book")


@ON_ALL_PROTOCOLS
async def test_a_task_is_saved_until_its_result_is_fetched(saved_calls: SavedCalls, tier: str) -> None:
    server = ExampleServer()
    async with open_client(server, tier, saved_calls=saved_calls) as client:
        handle = await start_task(client, "pass_gate")
        assert await saved_calls.list_refs() == [handle.task_ref]
        assert await saved_calls.find(str(handle.task_id)) == handle.task_ref
        assert await saved_calls.find("another") is None
        server.gate.open.set()
        await handle.result()
        assert await saved_calls.list_refs() == []


async def test_a_call_that_is_answered_at_once_is_not_saved(saved_calls: SavedCalls) -> None:
    async with open_client(ExampleServer(), saved_calls=saved_calls) as client:
        await client.call("add_at_once", {"a": 1, "b": 2})
        assert await saved_calls.list_refs() == []


@ON_ALL_PROTOCOLS
async def test_another_client_resumes_the_saved_calls(saved_calls: SavedCalls, tier: str) -> None:
    server = ExampleServer()
    async with server.tasks.running():
        async with open_client(server, tier, saved_calls=saved_calls) as first:
            begun = await start_task(first, "pass_gate")
        async with open_client(server, tier, saved_calls=saved_calls) as second:
            (handle,) = await second.open_calls()
            assert handle.task_id == begun.task_id
            server.gate.open.set()
            assert text_of(await handle.result()) == "through"
            assert await second.open_calls() == []


async def test_a_failed_or_cancelled_task_is_removed_from_the_saved_calls(saved_calls: SavedCalls) -> None:
    async with open_client(ExampleServer(), saved_calls=saved_calls) as client:
        with pytest.raises(MCPError):
            await (await start_task(client, "break_down")).result()
        handle = await start_task(client, "wait")
        await handle.cancel()
        with pytest.raises(TaskCancelled):
            await handle.result()
        assert await saved_calls.list_refs() == []


async def test_saved_calls_are_listed_per_server(saved_calls: SavedCalls) -> None:
    for server, task_id in (("a", "1"), ("b", "1"), ("a", "2")):
        await saved_calls.add(TaskRef(server=server, task_id=task_id, tool="add", tier="plain"))
    assert [task_ref.task_id for task_ref in await saved_calls.list_refs("a")] == ["1", "2"]
    assert [task_ref.server for task_ref in await saved_calls.list_refs()] == ["a", "b", "a"]
    await saved_calls.remove(TaskRef(server="a", task_id="1", tool="add", tier="plain"))
    assert [(task_ref.server, task_ref.task_id) for task_ref in await saved_calls.list_refs()] == [
        ("b", "1"),
        ("a", "2"),
    ]


async def test_a_task_reference_survives_dump_and_load() -> None:
    task_ref = TaskRef(server="calls", task_id="1", tool="añadir", tier="plain", tools={"wait": "task_wait"})
    assert TaskRef.load(task_ref.dump()) == task_ref
    assert json.loads(TASK_REF.dump())["task_id"] == "1"


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
async def test_invalid_task_references_are_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="is not a task reference"):
        TaskRef.load(text)


async def test_an_unreadable_saved_call_does_not_hide_others(
    saved_calls: SavedCalls, caplog: pytest.LogCaptureFixture
) -> None:
    await saved_calls.add(TASK_REF)
    with closing(sqlite3.connect(saved_calls.path)) as file:
        file.execute("""INSERT INTO slips VALUES ('2', 'calls', '{"of": "tomorrow"}')""")
        file.commit()
    with caplog.at_level(logging.ERROR):
        assert await saved_calls.list_refs() == [TASK_REF]
    assert "can't read a saved call" in caplog.text


async def test_only_the_owner_can_read_the_file_of_saved_calls(saved_calls: SavedCalls) -> None:
    assert await saved_calls.list_refs() == []
    assert not saved_calls.path.exists()
    for _ in range(2):
        await saved_calls.add(TASK_REF)
        assert saved_calls.path.stat().st_mode & 0o777 == 0o600
        saved_calls.path.chmod(0o644)


def contents_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


async def test_a_file_of_another_kind_is_left_unchanged(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "tasks.db")) as file:
        file.execute("CREATE TABLE tasks (id TEXT)")
        file.commit()
    (tmp_path / "letter").write_text("Dear Ada, " * 100)
    before = contents_of(tmp_path)
    for name in before:
        with pytest.raises(ConfigurationError, match=name):
            await SavedCalls(tmp_path / name).add(TASK_REF)
    assert contents_of(tmp_path) == before
    with pytest.raises(ConfigurationError, match="can't use the file of saved calls"):
        await SavedCalls(tmp_path / "nowhere" / "calls.book").add(TASK_REF)


async def test_a_task_that_can_not_be_saved_raises_with_its_reference(tmp_path: Path) -> None:
    server = ExampleServer()
    async with open_client(server, saved_calls=SavedCalls(tmp_path / "nowhere" / "calls.book")) as client:
        with pytest.raises(ConfigurationError) as raised:
            await client.call("pass_gate")
        (note,) = raised.value.__notes__
        task_ref = TaskRef.load(note[note.index("'") + 1 : note.rindex("'")])
        server.gate.open.set()
        await server.gate.started.wait()
        handle = client.resume(task_ref)
        # That it can't be crossed out is no reason to lose it.
        assert text_of(await handle.result()) == "through"


async def test_open_calls_requires_saved_calls() -> None:
    async with open_client(ExampleServer()) as client:
        with pytest.raises(ConfigurationError, match="saves no calls"):
            await client.open_calls()


async def test_saved_calls_of_a_server_without_an_address_require_a_name(saved_calls: SavedCalls) -> None:
    with pytest.raises(ConfigurationError, match="name="):
        TaskClient(lambda: "http://127.0.0.1:1/mcp", saved_calls=saved_calls)
    assert TaskClient(lambda: "http://127.0.0.1:1/mcp", saved_calls=saved_calls, name="reports").name == "reports"


async def test_secrets_in_an_address_are_not_saved() -> None:
    assert (
        TaskClient("https://ada:secret@example.com:8443/mcp?key=secret#secret").name == "https://example.com:8443/mcp"
    )
    program = StdioServerParameters(command="python", args=["my server.py"], env={"TOKEN": "secret"})
    assert TaskClient(program).name == "python 'my server.py'"
    assert TaskClient(ExampleServer().mcp).name == "calls"


async def run(*arguments: object) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, killable_caller.__file__, *map(str, arguments), stdout=asyncio.subprocess.PIPE
    )


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_killed_caller_resumes_its_task_and_gets_the_result(
    server_process: ServerProcess, saved_calls: SavedCalls, mode: str
) -> None:
    await server_process.start()
    caller = await run(saved_calls.path, server_process.url, mode, "start")
    assert caller.stdout is not None
    task_id = (await caller.stdout.readline()).decode().strip()
    caller.kill()
    assert await caller.wait() == -signal.SIGKILL
    await kill_server_too(server_process)
    again = await run(saved_calls.path, server_process.url, mode, "resume")
    text, _ = await again.communicate()
    assert text.decode().strip() == f"{task_id} {[f'step-{number}' for number in range(4)]}"
    assert await saved_calls.list_refs() == []


async def kill_server_too(server_process: ServerProcess) -> None:
    await server_process.kill()
    await server_process.start()


async def test_processes_can_share_a_file_of_saved_calls(
    server_process: ServerProcess, saved_calls: SavedCalls
) -> None:
    await server_process.start()
    saved = TaskRef(server="elsewhere", task_id="1", tool="add", tier="plain")
    await saved_calls.add(saved)
    callers = [await run(saved_calls.path, server_process.url, "auto", "many", name) for name in ("a", "bb", "ccc")]
    results = [(await caller.communicate())[0].decode().split() for caller in callers]
    for length, text in enumerate(results, start=1):
        assert text[1::2] == [str(number + length) for number in range(20)]
    assert len({task_id for text in results for task_id in text[::2]}) == 60
    assert await saved_calls.list_refs() == [saved]
