"""Ways to use up a server. Each attacks until it is stopped, and then releases all that it holds."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any

from tests.adversary.resources.sockets import HostileSocket, connected
from tests.adversary.served.caller import PoliteCaller, Refused, Unanswered, answer_in
from tests.adversary.served.http import exchange

Phase = Callable[[int, Random, asyncio.Event], Awaitable[Counter[str]]]
"""Attacks the server on a port until the event is set. Returns counts."""

MANY = 100
"""Connections that fit into the server at once."""

TOO_MANY = 300
"""Connections that do not."""

LARGE_BODY = 4 * 2**20 - 1_024

RESULT_SIZE = 1_000_000

STREAMS = 60

FLOOD_AT_ONCE = 16

PAUSE = 0.2

_anonymous = PoliteCaller(0, None)


def _call(tool: str, arguments: dict[str, Any]) -> bytes:
    return _anonymous.encode("tools/call", {"name": tool, "arguments": arguments})


async def aborted_posts(port: int, random: Random, stop: asyncio.Event) -> Counter[str]:
    """Send parts of requests, and disconnect: properly, or with a reset."""
    counts = Counter[str]()
    request = _call("remember", {"text": "x" * 10_000})
    while not stop.is_set():
        async with connected(port, MANY) as sockets:
            for one in sockets:
                await one.send(request[: random.randrange(len(request) + 1)])
                if random.random() < 0.5:
                    one.close(rudely=True)
            counts["aborted posts"] += len(sockets)
    return counts


async def slow_requests(port: int, random: Random, stop: asyncio.Event) -> Counter[str]:
    """Send requests byte by byte."""
    request = _anonymous.encode("tools/list", {})
    counts = Counter[str]()
    async with connected(port, MANY) as sockets:
        positions = [random.randrange(len(request) // 2) for _ in sockets]
        for one, position in zip(sockets, positions, strict=True):
            await one.send(request[:position])
        while not stop.is_set():
            for index, one in enumerate(sockets):
                position = positions[index]
                positions[index] += await one.send(request[position : position + 1])
            counts["slow bytes"] += len(sockets)
            await asyncio.sleep(PAUSE)
    return counts


async def idle_connections(port: int, random: Random, stop: asyncio.Event) -> Counter[str]:
    """Open more connections than fit, some of which sent a part of a request."""
    async with connected(port, TOO_MANY) as sockets:
        for one in sockets:
            if random.random() < 0.5:
                await one.send(b"POST /mcp HTTP/1.1\r\nHost: te")
        await stop.wait()
        return Counter({"idle connections": len(sockets)})


async def half_closed(port: int, random: Random, stop: asyncio.Event) -> Counter[str]:
    """Send requests, whole or in part, and close the sending half; never read."""
    counts = Counter[str]()
    request = _call("large", {"size": RESULT_SIZE})
    while not stop.is_set():
        async with connected(port, MANY) as sockets:
            for one in sockets:
                await one.send(request if random.random() < 0.5 else request[:-5])
                one.end_sending()
            counts["half-closed connections"] += len(sockets)
            await _wait(stop, 1.0)
    return counts


async def slow_readers(port: int, random: Random, stop: asyncio.Event) -> Counter[str]:
    """Request large answers, and read them byte by byte."""
    counts = Counter[str]()
    async with connected(port, STREAMS) as sockets:
        for one in sockets:
            await one.send(_call("echo", {"value": "y" * random.randrange(100_000, 900_000)}))
        while not stop.is_set():
            pieces = await asyncio.gather(*(one.read(1) for one in sockets))
            counts["slowly read bytes"] += sum(piece is not None for piece in pieces)
            await _wait(stop, PAUSE)
    return counts


async def large_bodies(port: int, random: Random, stop: asyncio.Event) -> Counter[str]:
    """Send bodies as large as they may be, all but their ends, and then the ends of some."""
    counts = Counter[str]()
    request = _call("measure", {"text": "z" * LARGE_BODY})
    while not stop.is_set():
        async with connected(port, STREAMS) as sockets:
            await asyncio.gather(*(one.send(request[:-10]) for one in sockets))
            await _wait(stop, 1.0)
            await asyncio.gather(*(one.send(request[-10:]) for one in sockets if random.random() < 0.5))
            counts["large bodies"] += len(sockets)
    return counts


async def unread_streams(port: int, random: Random, stop: asyncio.Event) -> Counter[str]:
    """Subscribe to tasks that change, and never read."""
    caller = PoliteCaller(port, None)
    counts = Counter[str]()
    async with connected(port, STREAMS) as sockets:
        while not stop.is_set():
            try:
                tasks = [await caller.start("nap", {"seconds": random.random()}) for _ in range(5)]
            except (Refused, Unanswered):
                counts["refused tasks to subscribe to"] += 1
                await _wait(stop, 1.0)
                continue
            one = sockets[counts["subscriptions"] % len(sockets)] if sockets else HostileSocket(port)
            await one.send(caller.encode("subscriptions/listen", {"notifications": {"taskIds": tasks}}))
            counts["subscriptions"] += 1
    return counts


async def connection_storm(port: int, random: Random, stop: asyncio.Event) -> Counter[str]:
    """Make many requests at once, each on a connection of its own."""
    counts = Counter[str]()
    while not stop.is_set():
        request = _anonymous.encode(random.choice(("tools/list", "server/discover")), {})
        responses = await asyncio.gather(*(exchange(port, request, 30.0) for _ in range(TOO_MANY)))
        answered = sum(answer_in(response) is not None for response in responses)
        counts["requests of storms"] += len(responses)
        counts["requests of storms that were answered"] += answered
    return counts


async def creation_flood(port: int, random: Random, stop: asyncio.Event) -> Counter[str]:
    """Create tasks without end, as an unverified caller."""
    counts = Counter[str]()

    async def create() -> None:
        caller = PoliteCaller(port, None)
        while not stop.is_set():
            try:
                await caller.call(random.choice(("remember", "wait", "nap")), {"text": "t", "note": "n", "seconds": 0})
                counts["tasks of the flood"] += 1
            except Refused as error:
                counts[f"tasks of the flood refused with {error.code}"] += 1
            except Unanswered:
                counts["tasks of the flood unanswered"] += 1

    await asyncio.gather(*(create() for _ in range(FLOOD_AT_ONCE)))
    return counts


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()


PHASES: tuple[Phase, ...] = (
    aborted_posts,
    slow_requests,
    idle_connections,
    half_closed,
    slow_readers,
    large_bodies,
    unread_streams,
    connection_storm,
    creation_flood,
)
