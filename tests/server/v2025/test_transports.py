"""Tasks of 2025-11-25 on every transport of the SDK."""

import asyncio
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.server.caller_v2025 import V2025Caller, connected, v2025_caller
from tests.support.server.example import ExampleServer
from tests.support.server.tools import YES, add_gated, add_greeting, text_of
from tests.support.server.transports_v2025 import v2025_stdio
from tests.support.server.v2025.tools import add_metered, refusal

pytestmark = pytest.mark.anyio

SERVER = ROOT / "examples/conformance.py"


@pytest.mark.requirement("v2025-http-as-ever", "v2025-transitions")
@pytest.mark.parametrize("way", ["memory", "http", "http-events", "http-json"])
async def test_all_of_it(way: str) -> None:
    """Create a task, receive notifications, answer a question, poll, wait, list, and cancel."""
    server = ExampleServer()
    add_greeting(server)
    gate, meter = add_gated(server), add_metered(server)
    async with v2025_caller(server, way, headers={"authorization": "Bearer alice"}) as caller:
        asks = await caller.start("greet", task={"ttl": 60_000})
        await caller.until(asks, "input_required")
        waiting = await caller.wait(asks)
        await caller.reply(await caller.asked(), YES)
        assert text_of(await waiting.result()) == "Hello, Ada!"

        measured = await caller.start("metered", meta={"progressToken": 0})
        await meter.show(1, 2)
        await caller.until_progress(1)
        meter.finish()
        assert text_of(await caller.result(measured)) == "measured"

        works = await caller.start("gated")
        await gate.started.wait()
        assert (await caller.cancel(works))["status"] == "cancelled"
        await caller.until(works, "cancelled")
        assert (await refusal(caller, "tasks/result", {"taskId": works})).code == -32000
        assert [task["taskId"] for task in (await caller.page())["tasks"]] == [works, measured, asks]


async def test_over_http_an_answer_is_a_stream_or_json_as_the_server_is_set_up() -> None:
    for way, kind in (("http", "text/event-stream"), ("http-json", "application/json")):
        server = ExampleServer(works=False)
        add_gated(server)
        async with v2025_caller(server, way) as caller:
            task_id = await caller.start("gated")
            call = await caller.begin("tasks/get", {"taskId": task_id})
            await call.result()
            assert caller.http.types[call.id] == kind


def stdio(tmp_path: Path) -> tuple[str, ...]:
    return "--transport", "stdio", "--store", str(tmp_path / "tasks.db")


async def wait_without_blocking(caller: V2025Caller) -> None:
    """A result that is waited for holds up neither pings nor polls nor other calls."""
    never = await caller.start("slow_compute", {"seconds": 600, "label": "never"})
    waiting = await caller.wait(never)
    await caller.ping()
    assert (await caller.get(never))["status"] == "working"
    assert text_of(await caller.call("greet", {"name": "Ann"})) == "Hello, Ann!"
    assert not waiting.received.done()
    assert (await caller.cancel(never))["status"] == "cancelled"
    assert (await waiting.received)["error"]["code"] == -32000
    pushed = await caller.until(never, "cancelled")
    assert "ttl" in pushed


@pytest.mark.requirement("v2025-result-blocks")
async def test_the_standard_streams_carry_all_of_it_and_tasks_outlive_the_process(tmp_path: Path) -> None:
    async with v2025_stdio(SERVER, *stdio(tmp_path)) as transport, connected(transport) as caller:
        assert caller.welcome["capabilities"]["tasks"].keys() == {"list", "cancel", "requests"}
        await wait_without_blocking(caller)

        asks = await caller.start("confirm_delete", {"filename": "a.txt"})
        asking = await caller.until(asks, "input_required")
        assert "ttl" in asking
        assert asking["ttl"] is None
        waiting = await caller.wait(asks)
        await caller.reply(await caller.asked(), {"action": "accept", "content": {"confirm": True}})
        assert text_of(await waiting.result()) == "a.txt is deleted"

        failing = await caller.start("failing_job")
        assert (await caller.result(failing))["isError"] is True
        assert (await caller.get(failing))["status"] == "failed"

        unfinished = await caller.start("confirm_delete", {"filename": "b.txt"})
        # On receipt of its id it can be read by another process.
        async with v2025_stdio(SERVER, *stdio(tmp_path)) as other_wire, connected(other_wire) as other:
            assert (await other.get(unfinished))["status"] in ("working", "input_required")
            assert (await other.page())["tasks"][0]["taskId"] == unfinished

    async with v2025_stdio(SERVER, *stdio(tmp_path)) as transport, connected(transport) as caller:
        waiting = await caller.wait(unfinished)
        await caller.reply(await caller.asked(), {"action": "decline"})
        assert text_of(await waiting.result()) == "b.txt is kept"
        assert text_of(await caller.result(asks)) == "a.txt is deleted"


async def test_a_server_whose_caller_disconnects_while_it_waits_for_a_result_stops_cleanly(tmp_path: Path) -> None:
    async with v2025_stdio(SERVER, *stdio(tmp_path)) as transport, connected(transport) as caller:
        task_id = await caller.start("slow_compute", {"seconds": 600, "label": "never"}, meta={"progressToken": 1})
        waiting = [await caller.wait(task_id) for _ in range(3)]
        process = getattr(transport.transport, "process")  # noqa: B009 - this wire has one
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), 60) == 0
        assert not any("result" in call.received.result() for call in waiting if call.received.done())
