"""A connection that carries one message per line: stdio, or a Unix socket."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any, Protocol

from tests.adversary.fuzz.checks import is_answer, owed_id, parse_all
from tests.adversary.fuzz.values import encode, hostile_value

LINE_LIMIT = 2**26

SETTLE_TIME = 30.0
"""Seconds after which an answer counts as missing, if later requests have been answered since."""

LATER_REQUESTS = 20


class LineWriter(Protocol):
    def write(self, data: bytes, /) -> None: ...
    async def drain(self) -> None: ...
    def close(self) -> None: ...


class LineConnection:
    """Sends lines, and keeps account of what must be answered and of what was."""

    def __init__(self, random: Random, reader: asyncio.StreamReader, writer: LineWriter) -> None:
        self._random = random
        self._reader = reader
        self._writer = writer
        self.sent: list[bytes] = []
        self.owed = Counter[str | int]()
        self.excused: set[str | int] = set()
        self.received: list[bytes] = []
        self.answers: list[Any] = []
        self.faults: list[str] = []
        self.is_closed = False
        self._arrived = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def send(self, line: bytes, *, may_wait: bool = False) -> None:
        """Send what may be one line or several."""
        for part in line.split(b"\n"):
            self.sent.append(part)
            id_ = owed_id(part)
            if id_ is not None:
                self.owed[id_] += 1
                if may_wait:
                    self.excused.add(id_)
        with suppress(ConnectionError):
            self._writer.write(line + b"\n")
            await self._writer.drain()

    async def ask(self, message: dict[str, Any], patience: float) -> Any:
        """Send a request, and return its answer; None if there is none in time."""
        await self.send(json.dumps(message).encode())
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while True:
                    self._arrived.clear()
                    for answer in reversed(self.answers):
                        if answer.get("id") == message["id"]:
                            return answer
                    if self.is_closed:
                        return None
                    await self._arrived.wait()
        return None

    def missing(self) -> list[str | int]:
        """Return the ids of requests that must be answered, and are not yet."""
        given = {id_ for answer in self.answers if isinstance(id_ := answer.get("id"), str | int)}
        return [id_ for id_ in self.owed if id_ not in given and id_ not in self.excused]

    async def settle(self, ask_later: Callable[[], Awaitable[object]]) -> None:
        """Wait for missing answers, until many later requests have been answered and some time has passed."""
        started = asyncio.get_running_loop().time()
        later = 0
        while self.missing() and not self.is_closed:
            waited = asyncio.get_running_loop().time() - started
            if later >= LATER_REQUESTS and waited > SETTLE_TIME:
                return
            await asyncio.sleep(0.05 if waited < 1 else 1.0)
            if waited >= 1:
                await ask_later()
                later += 1

    async def close(self) -> None:
        self._writer.close()
        self._reading.cancel()
        await asyncio.wait([self._reading])

    async def _read(self) -> None:
        with suppress(ConnectionError):
            while line := await self._reader.readline():
                self.received.append(line)
                messages, faults = parse_all([line])
                self.faults += faults
                for message in messages:
                    await self._take(message)
                self._arrived.set()
        self.is_closed = True
        self._arrived.set()

    async def _take(self, message: Any) -> None:
        if is_answer(message):
            self.answers.append(message)
        elif isinstance(message, dict) and "id" in message:
            # A question of the server: it gets some answer, often a wrong one.
            await self.send(encode(self._random, self._reply(message["id"])))

    def _reply(self, id_: Any) -> dict[str, Any]:
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": id_}
        match self._random.randrange(5):
            case 0:
                return reply | {"result": {"action": "accept", "content": {"ok": True, "note": "n"}}}
            case 1:
                return reply | {"result": {"action": "accept", "content": hostile_value(self._random)}}
            case 2:
                return reply | {"result": hostile_value(self._random)}
            case 3:
                return reply | {"error": {"code": -1, "message": "no", "data": hostile_value(self._random)}}
            case _:
                return reply | {"result": {"action": "decline"}}


async def connect_unix(random: Random, path: str) -> LineConnection:
    """Connect to a Unix socket."""
    reader, writer = await asyncio.open_unix_connection(path, limit=LINE_LIMIT)
    return LineConnection(random, reader, writer)


def connect_stdio(random: Random, process: asyncio.subprocess.Process) -> LineConnection:
    """Use the pipes of a process that serves stdio."""
    assert process.stdin is not None
    assert process.stdout is not None
    return LineConnection(random, process.stdout, process.stdin)
