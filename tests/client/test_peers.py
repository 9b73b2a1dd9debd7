"""Tests for the client on servers that are built on other libraries."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from raincheck.client import InputRequired, TaskCancelled, TaskClient, answer_later
from raincheck.core.lifecycle import Status
from raincheck.errors import TaskNotFound
from tests.support.client.callers import User, start_task, text_of
from tests.support.peers import FASTMCP4, MCP1, Peer

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def urls() -> Iterator[dict[str, str]]:
    """Both servers over HTTP: they take long to start."""
    with MCP1.on_http() as mcp1, FASTMCP4.on_http() as fastmcp4:
        yield {MCP1.name: mcp1, FASTMCP4.name: fastmcp4}


PEERS = pytest.mark.parametrize("peer", [MCP1, FASTMCP4], ids=lambda peer: peer.name)
WAYS = pytest.mark.parametrize("way", ["http", "stdio"])


def client_of(peer: Peer, way: str, urls: dict[str, str], **options: Any) -> TaskClient:
    mode = "legacy" if peer is MCP1 else "auto"
    return TaskClient(urls[peer.name] if way == "http" else peer.on_stdio(), mode=mode, **options)


@WAYS
@PEERS
async def test_calls_return_their_results(peer: Peer, way: str, urls: dict[str, str]) -> None:
    async with client_of(peer, way, urls) as client:
        assert (await client.connected()).protocol_version == peer.version
        handle = await start_task(client, "count", {"steps": 3})
        observed = [update async for update in handle]
        assert observed[-1].status is Status.COMPLETED
        assert not (await handle.result()).is_error
        for tool in ("always", "plain"):
            assert text_of(await client.call_tool(tool, {"name": "Ada"})) == "hello Ada"


@PEERS
async def test_only_tools_that_support_tasks_become_tasks(peer: Peer, urls: dict[str, str]) -> None:
    async with client_of(peer, "http", urls) as client:
        assert (await client.call("plain", {"name": "Ada"})).task_id is None
        assert (await client.call("always", {"name": "Ada"})).task_id is not None


@PEERS
async def test_failures_are_raised(peer: Peer, urls: dict[str, str]) -> None:
    async with client_of(peer, "http", urls) as client:
        failed = await client.call_tool("fail", {"why": "no paper left"})
        assert failed.is_error
        assert "no paper left" in text_of(failed)
        handle = await start_task(client, "crash", {"why": "a bug"})
        if peer is MCP1:
            with pytest.raises(MCPError, match="a bug"):
                await handle.result()
        else:
            assert (await handle.result()).is_error


@WAYS
@PEERS
async def test_questions_go_to_the_callback(peer: Peer, way: str, urls: dict[str, str]) -> None:
    user = User()
    async with client_of(peer, way, urls, elicitation_callback=user.answer) as client:
        result = await client.call_tool("ask", {"question": "Sure?"})
        assert not result.is_error
        assert "rue" in text_of(result)
    assert user.asked == ["Sure?"]


@PEERS
async def test_questions_are_answered_with_the_handle(peer: Peer, urls: dict[str, str]) -> None:
    async with client_of(peer, "http", urls, elicitation_callback=answer_later) as client:
        handle = await start_task(client, "ask", {"question": "Sure?"})
        with pytest.raises(InputRequired) as needed:
            await handle.result()
        (question,) = needed.value.questions
        assert question.message == "Sure?"
        await handle.answer({question.key: {"action": "accept", "content": {"sure": True}}})
        assert "rue" in text_of(await handle.result())


@PEERS
async def test_cancelling_raises_for_waiters(peer: Peer, urls: dict[str, str]) -> None:
    async with client_of(peer, "http", urls) as client:
        handle = await start_task(client, "wait")
        waiting = asyncio.create_task(handle.result())
        await handle.cancel()
        with pytest.raises(TaskCancelled):
            await waiting
        await handle.cancel()


@PEERS
async def test_many_calls_run_concurrently(peer: Peer, urls: dict[str, str]) -> None:
    async with client_of(peer, "http", urls) as client:
        handles = await asyncio.gather(*(client.call("count", {"steps": 2}) for _ in range(20)))
        results = await asyncio.gather(*(handle.result() for handle in handles))
        assert not any(result.is_error for result in results)


async def test_a_task_can_be_resumed_on_another_connection_if_the_server_allows_it(urls: dict[str, str]) -> None:
    for peer in (MCP1, FASTMCP4):
        async with client_of(peer, "http", urls) as client:
            task_ref = (await start_task(client, "count", {"steps": 2})).task_ref
        assert task_ref is not None
        async with client_of(peer, "http", urls) as client:
            handle = client.resume(task_ref)
            if peer is MCP1:
                with pytest.raises(TaskNotFound):
                    await handle.result()
            else:
                assert not (await handle.result()).is_error


async def test_a_server_with_only_the_newer_tasks_is_called_normally_in_the_older_protocol(
    urls: dict[str, str],
) -> None:
    async with TaskClient(urls[FASTMCP4.name], mode="legacy") as client:
        handle = await client.call("greet", {"name": "Ada"})
        assert handle.task_id is None
        assert text_of(await handle.result()) == "hello Ada"
