"""The client, as a process of its own: `python -m bench.wire.client PORT` takes orders on stdin and tells on stdout.

An order is a line of JSON: what to do, how often, and by how many callers at once. Each caller has a connection, and
sends its next request when it has the answer to the last. What is told is a line of JSON: how many seconds it took.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal, TypeAlias

from bench.wire import requests

Operation: TypeAlias = Literal["call", "create", "get"]

_LENGTH = b"content-length:"


@dataclass(frozen=True, slots=True)
class Order:
    """What to measure. Tasks are polled that were created by the order before."""

    operation: Operation
    count: int
    callers: int


class Client:
    """Does as ordered. It reads of an answer what it must, so that most of what is measured is the server's."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._task_ids: list[str] = []

    async def do(self, order: Order) -> float:
        """How many seconds it took."""
        answers: list[Mapping[str, Any]] = []
        numbers = iter(range(order.count))
        begun = perf_counter()
        await asyncio.gather(
            *(self._calls(numbers, self._requests(order.operation), answers) for _ in range(order.callers))
        )
        seconds = perf_counter() - begun
        if order.operation == "create":
            self._task_ids = [str(answer["taskId"]) for answer in answers]
        return seconds

    def _requests(self, operation: Operation) -> Callable[[int], bytes]:
        if operation == "get":
            return lambda number: requests.get(self._port, number, self._task_ids[number % len(self._task_ids)])
        return lambda number: requests.call(self._port, number)

    async def _calls(
        self, numbers: Iterator[int], request: Callable[[int], bytes], answers: list[Mapping[str, Any]]
    ) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        for number in numbers:
            writer.write(request(number))
            answer = await _read(reader)
            assert "result" in answer, answer
            answers.append(answer["result"])
        writer.close()


async def _read(reader: asyncio.StreamReader) -> Mapping[str, Any]:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    begin = head.index(_LENGTH) + len(_LENGTH)
    length = int(head[begin : head.index(b"\r", begin)])
    answer: Mapping[str, Any] = json.loads(await reader.readexactly(length))
    return answer


async def _serve(port: int) -> None:
    client = Client(port)
    while line := await asyncio.to_thread(sys.stdin.readline):
        seconds = await client.do(Order(**json.loads(line)))
        print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
