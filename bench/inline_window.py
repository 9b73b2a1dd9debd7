"""The cost of the inline window: a tool that ends at once as a task, compared with the same tool without tasks.

One caller sends one call after the other, over HTTP on this machine. Both figures include the cost of the client.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import httpx2

from bench.figure import Bound, Figure
from bench.inline_window_server import AS_TASK, PLAIN
from bench.processes import served
from bench.progress import Progress
from bench.rounds import in_turns

CALLS = 20
"""Calls of a round. Few, so that the two sides alternate faster than the load of the machine changes."""

_WARMUP = 50
_VERSION = "2026-07-28"

_BOUNDS = {"memory": Bound("at most", 1.6), "SQLite": Bound("at most", 3.0)}


async def measure(folder: Path, *, rounds: int, progress: Progress) -> list[Figure]:
    stores = {"memory": "memory:", "SQLite": str(folder / "grace.db")}
    return [await _measure(name, stores[name], rounds=rounds, progress=progress) for name in _BOUNDS]


async def _measure(name: str, store: str, *, rounds: int, progress: Progress) -> Figure:
    progress.stage(f"grace, {name}: {rounds} rounds of {CALLS} calls, as tasks and plainly")
    async with served("bench.inline_window_server", store) as port, httpx2.AsyncClient() as client:
        url = f"http://127.0.0.1:{port}/mcp"
        as_task, plain = (partial(_milliseconds, client, url, tool) for tool in (AS_TASK, PLAIN))
        for warm_up in (as_task, plain):
            await warm_up(_WARMUP)
        pair = await in_turns(rounds, as_task, plain, progress)
    what = f"a call that is answered inline within its window, on {name}, against one of the SDK alone"
    return Figure(f"grace, {name}", what, "ms", pair.measured, pair.against, _BOUNDS[name])


async def _milliseconds(client: httpx2.AsyncClient, url: str, tool: str, calls: int = CALLS) -> float:
    """Return the median duration of this many calls."""
    return 1_000 * median([await _seconds(client, url, tool, number) for number in range(calls)])


async def _seconds(client: httpx2.AsyncClient, url: str, tool: str, number: int) -> float:
    started_at = perf_counter()
    response = await client.post(url, json=_request(tool, number), headers=_headers(tool))
    seconds = perf_counter() - started_at
    # The result, and not a task or an error.
    assert response.json()["result"]["structuredContent"] == {"result": f"the number is {number}"}
    return seconds


def _request(tool: str, number: int) -> Mapping[str, object]:
    meta: Mapping[str, object] = {
        "protocolVersion": _VERSION,
        "clientInfo": {"name": "bench", "version": "1"},
        "clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    }
    params = {
        "name": tool,
        "arguments": {"number": number},
        "_meta": {f"io.modelcontextprotocol/{key}": value for key, value in meta.items()},
    }
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def _headers(tool: str) -> Mapping[str, str]:
    return {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": _VERSION,
        "mcp-method": "tools/call",
        "mcp-name": tool,
        "authorization": "user",
    }
