"""`bench.entrances`: every entrance serves the same tools, and each response reaches its caller."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from bench.figure import Bound
from bench.progress import Progress
from bench.results import Results
from bench.wire.connection import LineConnection
from bench.wire.requests import LineRequests

from bench import entrances, page

pytestmark = pytest.mark.anyio

FIGURES = [f"{name} {kind}" for kind in ("latency", "throughput") for name in ("poll", "call", "create")]


async def test_every_entrance_polls_calls_and_creates() -> None:
    figures = await entrances.measure(rounds=1, seconds=0.05, progress=Progress())
    assert [(one.name, one.server) for one in figures] == [
        (name, entrance) for name in FIGURES for entrance in entrances.NAMES
    ]
    assert all(min(*one.measured, *(one.against or ())) > 0 for one in figures)


def test_a_delay_of_40_ms_in_serve_http_misses_the_bound_and_is_among_the_aims() -> None:
    rates = {name: [1_000.0, 500.0] for name in entrances.NAMES} | {entrances.HTTP: [20.0, 25.0]}
    figures = entrances.figures_of("poll", 1, rates)
    (bound,) = (one for one in figures if one.bound is not None)
    assert (bound.server, bound.bound, bound.measured, bound.against) == (
        "serve --http",
        Bound("at most", 1.3),
        [50, 40],
        [1, 2],
    )
    assert (bound.value, bound.verdict) == (35, "MISSED")
    results = Results("2026-01-01T00:00+00:00", "full", "a machine", figures)
    text = page.fill("<!-- performance: aims -->\n<!-- end performance -->", results)
    assert text.splitlines()[3] == "| `poll latency` | serve --http | at most 1.3 | 35.0 (20.0 to 50.0) | **missed** |"


def test_throughput_is_compared_without_scaling() -> None:
    rates = {name: [100.0] for name in entrances.NAMES} | {entrances.STDIO: [300.0]}
    found = {one.server: (one.name, one.value, one.bound) for one in entrances.figures_of("call", 16, rates)}
    assert found[entrances.STDIO] == ("call throughput", 3, None)
    assert found[entrances.UVICORN] == ("call throughput", 1, None)


@asynccontextmanager
async def pair() -> AsyncGenerator[tuple[LineConnection, asyncio.StreamReader, asyncio.StreamWriter]]:
    ours, theirs = socket.socketpair()
    line = LineConnection(*await asyncio.open_connection(sock=ours))
    reader, writer = await asyncio.open_connection(sock=theirs)
    try:
        yield line, reader, writer
    finally:
        writer.close()
        line.close()


def answer(request: bytes, **content: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": json.loads(request)["id"], **content}).encode() + b"\n"


async def test_responses_in_another_order_reach_their_callers() -> None:
    requests = LineRequests()
    async with pair() as (line, reader, writer), asyncio.TaskGroup() as callers:
        calls = [callers.create_task(line.ask(requests.call("greet", {"name": name}))) for name in ("a", "b")]
        sent = [await reader.readline() for _ in calls]
        writer.write(b'{"jsonrpc": "2.0", "method": "notifications/message", "params": {}}\n')
        for request in reversed(sent):
            writer.write(answer(request, result=json.loads(request)["params"]["arguments"]))
    assert [call.result() for call in calls] == [{"name": "a"}, {"name": "b"}]


async def test_an_error_and_a_closed_connection_end_the_measurement() -> None:
    requests = LineRequests()
    async with pair() as (line, reader, writer):
        async with asyncio.TaskGroup() as callers:
            refused = callers.create_task(expect(RuntimeError, "the server refused", line, requests))
            writer.write(answer(await reader.readline(), error={"code": -32603, "message": "no"}))
        assert refused.done()
        async with asyncio.TaskGroup() as callers:
            callers.create_task(expect(ConnectionError, "closed the connection", line, requests))
            await reader.readline()
            writer.close()


async def expect(error: type[Exception], message: str, line: LineConnection, requests: LineRequests) -> None:
    with pytest.raises(error, match=message):
        await line.ask(requests.call("greet", {"name": "a"}))
