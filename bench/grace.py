"""What the grace window costs: a tool that answers at once as a task, against the same tool of the same server alone.

One caller, one call after the other, over HTTP on this machine. What the client costs is in both.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import httpx2

from bench.figure import Bound, Figure
from bench.grace_server import AS_TASK, PLAIN
from bench.progress import Progress
from bench.rounds import in_turns
from bench.serving import served

CALLS = 20
"""In a round. Few, so that the two take turns faster than a machine changes how busy it is with others."""

_WARMUP = 50
_VERSION = "2026-07-28"

_BOUNDS = {"memory": Bound("at most", 1.6), "SQLite": Bound("at most", 3.0)}


async def measure(folder: Path, *, rounds: int, progress: Progress) -> list[Figure]:
    stores = {"memory": "memory:", "SQLite": str(folder / "grace.db")}
    return [await _measure(name, stores[name], rounds=rounds, progress=progress) for name in _BOUNDS]


async def _measure(name: str, store: str, *, rounds: int, progress: Progress) -> Figure:
    progress.stage(f"grace, {name}: {rounds} rounds of {CALLS} calls, as tasks and plainly")
    async with served("bench.grace_server", store) as port, httpx2.AsyncClient() as client:
        url = f"http://127.0.0.1:{port}/mcp"
        as_task, plain = (partial(_milliseconds, client, url, tool) for tool in (AS_TASK, PLAIN))
        for warm_up in (as_task, plain):
            await warm_up(_WARMUP)
        pair = await in_turns(rounds, as_task, plain, progress)
    what = f"a call that is answered inline within its window, on {name}, against one of the SDK alone"
    return Figure(f"grace, {name}", what, "ms", pair.measured, pair.against, _BOUNDS[name])


async def _milliseconds(client: httpx2.AsyncClient, url: str, tool: str, calls: int = CALLS) -> float:
    """The median of so many calls."""
    return 1_000 * median([await _seconds(client, url, tool, number) for number in range(calls)])


async def _seconds(client: httpx2.AsyncClient, url: str, tool: str, number: int) -> float:
    begun = perf_counter()
    response = await client.post(url, json=_request(tool, number), headers=_headers(tool))
    seconds = perf_counter() - begun
    # Not the task, and no error: otherwise something else would have been measured.
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
        "authorization": "somebody",
    }
