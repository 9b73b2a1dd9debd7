"""A desk that writes down what it is asked, and short words for starting bodies in processes."""

import asyncio
import contextvars
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from raincheck.core.owner import Owner
from raincheck.core.payload import Json
from raincheck.core.records import InputKind
from raincheck.engine.execution.api import StepStart, TaskInfo, TaskOutcome
from raincheck.engine.execution.bodies import BodyCall, BodyFailure, BodyOutcome, BodyResult
from raincheck.engine.isolation.process_body import ProcessBody
from raincheck.engine.tool import make_tool

FACTS = TaskInfo(
    id="task-1",
    owner=Owner.local().key,
    tool="isolated",
    version="1",
    attempt=2,
    caller={"who": "me"},
    variables={"kept": 1},
)
LONG = 20
"""Seconds that only a failure takes."""


class RecordingDesk:
    """Serves every call, unless it is told what to raise."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.said: asyncio.Queue[str] = asyncio.Queue()
        self.raises: dict[str, BaseException] = {}

    def _take(self, *call: Any) -> None:
        self.calls.append(call)
        if call[0] in self.raises:
            raise self.raises[call[0]]

    async def report(self, done: float | None, total: float | None, message: str | None) -> None:
        self._take("report", done, total, message)
        if message is not None:
            self.said.put_nowait(message)

    async def begin_step(self, name: str, fingerprint: str) -> StepStart:
        self._take("begin_step", name, fingerprint.partition(":")[0])
        return StepStart(1, is_recorded=True, result={"from": "before"}) if name == "known" else StepStart(3)

    async def finish_step(self, name: str, turn: StepStart, fingerprint: str, result: Json) -> None:
        self._take("finish_step", name, turn, fingerprint.partition(":")[0], result)

    def drop_step(self, name: str, occurrence: int) -> None:
        self._take("drop_step", name, occurrence)

    async def ask(self, kind: InputKind, name: str, request: Json) -> Json:
        self._take("ask", kind, name, request)
        return {"action": "accept", "content": {"ok": True}} if kind is InputKind.ELICITATION else {"text": "sampled"}

    async def sleep(self, seconds: float, name: str | None) -> None:
        self._take("sleep", seconds, name)
        if seconds > LONG:
            self.said.put_nowait("sleeping")
            try:
                await asyncio.sleep(seconds)
            finally:
                self.said.put_nowait("given up")

    async def set_variables(self, variables: Mapping[str, Json]) -> None:
        self._take("set_variables", variables)

    async def keep_artifact(self, name: str, content: Json) -> None:
        self._take("keep_artifact", name, content)

    async def spawn(self, tool: str, arguments: Mapping[str, Json], name: str | None) -> str:
        self._take("spawn", tool, arguments, name)
        return "child-1"

    async def child_outcome(self, child_id: str) -> TaskOutcome:
        self._take("child_outcome", child_id)
        return TaskOutcome("completed", is_error=False, outcome="of the child", message=None)

    async def start_after(self, tool: str, arguments: Mapping[str, Json], result_as: str) -> str:
        self._take("start_after", tool, arguments, result_as)
        return "next-1"


class Isolation:
    """Starts bodies."""

    def __init__(self) -> None:
        self.desk = RecordingDesk()
        self.started: list[ProcessBody] = []

    def start(
        self, body: Callable[..., Any], *, grace: float = LONG, is_stopped: bool = False, **arguments: Json
    ) -> ProcessBody:
        tool = make_tool(body, name="isolated", isolation="process", grace=grace)
        variables = contextvars.copy_context()
        process = ProcessBody(BodyCall(tool, arguments, FACTS, self.desk, lambda: is_stopped, variables))
        self.started.append(process)
        return process

    async def ending(self, body: Callable[..., Any], **arguments: Any) -> BodyOutcome:
        return await ending_of(self.start(body, **arguments))

    async def returned_by(self, body: Callable[..., Any], **arguments: Any) -> Any:
        ending = await self.ending(body, **arguments)
        assert isinstance(ending, BodyResult), ending
        return ending.value

    async def raised_by(self, body: Callable[..., Any], **arguments: Any) -> BaseException:
        return error_of(await self.ending(body, **arguments))

    async def hear(self) -> str:
        """What a body says next as its status."""
        async with asyncio.timeout(LONG):
            return await self.desk.said.get()


@asynccontextmanager
async def isolating() -> AsyncGenerator[Isolation]:
    isolation = Isolation()
    yield isolation
    for process in isolation.started:
        process.request_stop()
        await ending_of(process)


async def ending_of(process: ProcessBody) -> BodyOutcome:
    async with asyncio.timeout(LONG):
        return await asyncio.shield(process.ended)


def error_of(ending: BodyOutcome) -> BaseException:
    assert isinstance(ending, BodyFailure), ending
    return ending.error


def is_there(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return True


class Witness:
    """Knows whether a process is there: it connects to `address`, and the connection ends with it."""

    def __init__(self, path: Path) -> None:
        self.address = str(path)
        self._came: asyncio.Queue[asyncio.StreamReader] = asyncio.Queue()
        self._reader: asyncio.StreamReader | None = None

    async def came(self) -> None:
        async with asyncio.timeout(LONG):
            self._reader = await self._came.get()

    async def went(self) -> None:
        assert self._reader is not None
        async with asyncio.timeout(LONG):
            assert await self._reader.read() == b""

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator["Witness"]:
        writers: list[asyncio.StreamWriter] = []

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            self._came.put_nowait(reader)

        server = await asyncio.start_unix_server(connected, self.address)
        async with server:
            yield self
            for writer in writers:
                writer.close()
                await writer.wait_closed()
