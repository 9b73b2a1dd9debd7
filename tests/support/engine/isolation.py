"""A task API that records its calls, and a harness that starts bodies in processes."""

import asyncio
import contextvars
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from raincheck.core.owner import Owner
from raincheck.core.records import InputKind
from raincheck.core.values import Json, Payload, decode
from raincheck.engine.execution.bodies import BodyCall, BodyFailure, BodyOutcome, BodyResult
from raincheck.engine.execution.context import StepStart, TaskInfo
from raincheck.engine.inputs import TaskOutcome
from raincheck.engine.isolation.process_body import ProcessBody
from raincheck.engine.tool import make_tool

INFO = TaskInfo(
    id="task-1",
    owner=Owner.local().key,
    attempt=2,
    caller={"who": "me"},
    variables={"kept": 1},
)
TIMEOUT = 20
"""Timeout in seconds that only a failure reaches."""


class RecordingTaskApi:
    """Records and serves every call, except those that have an error in `raises`."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.statuses: asyncio.Queue[str] = asyncio.Queue()
        self.raises: dict[str, BaseException] = {}

    def _record(self, *call: Any) -> None:
        self.calls.append(call)
        if call[0] in self.raises:
            raise self.raises[call[0]]

    async def report(self, done: float | None, total: float | None, message: str | None) -> None:
        self._record("report", done, total, message)
        if message is not None:
            self.statuses.put_nowait(message)

    async def begin_step(self, name: str, fingerprint: str) -> StepStart:
        self._record("begin_step", name, fingerprint.partition(":")[0])
        return StepStart(1, is_recorded=True, result={"from": "before"}) if name == "known" else StepStart(3)

    async def finish_step(self, name: str, start: StepStart, fingerprint: str, result: Payload) -> None:
        self._record("finish_step", name, start, fingerprint.partition(":")[0], decode(result))

    def drop_step(self, name: str, occurrence: int) -> None:
        self._record("drop_step", name, occurrence)

    async def ask(self, kind: InputKind, name: str, request: Json) -> Json:
        self._record("ask", kind, name, request)
        return {"action": "accept", "content": {"ok": True}} if kind is InputKind.ELICITATION else {"text": "sampled"}

    async def sleep(self, seconds: float, name: str | None) -> None:
        self._record("sleep", seconds, name)
        if seconds > TIMEOUT:
            self.statuses.put_nowait("sleeping")
            try:
                await asyncio.sleep(seconds)
            finally:
                self.statuses.put_nowait("cancelled")

    async def set_variables(self, variables: Mapping[str, Json]) -> None:
        self._record("set_variables", variables)

    async def store_artifact(self, name: str, content: Json) -> None:
        self._record("store_artifact", name, content)

    async def spawn(self, tool: str, arguments: Mapping[str, Json], name: str | None) -> str:
        self._record("spawn", tool, arguments, name)
        return "child-1"

    async def child_outcome(self, child_id: str) -> TaskOutcome:
        self._record("child_outcome", child_id)
        return TaskOutcome("completed", is_error=False, outcome="of the child", message=None)

    async def start_after(self, tool: str, arguments: Mapping[str, Json], result_as: str) -> str:
        self._record("start_after", tool, arguments, result_as)
        return "next-1"


class Isolation:
    """Starts bodies in processes."""

    def __init__(self) -> None:
        self.api = RecordingTaskApi()
        self.started: list[ProcessBody] = []

    def start(
        self, body: Callable[..., Any], *, grace: float = TIMEOUT, is_stopped: bool = False, **arguments: Json
    ) -> ProcessBody:
        tool = make_tool(body, name="isolated", isolation="process", grace=grace)
        variables = contextvars.copy_context()
        process = ProcessBody(BodyCall(tool, arguments, INFO, self.api, lambda: is_stopped, variables))
        self.started.append(process)
        return process

    async def outcome(self, body: Callable[..., Any], **arguments: Any) -> BodyOutcome:
        return await body_outcome(self.start(body, **arguments))

    async def returned_by(self, body: Callable[..., Any], **arguments: Any) -> Any:
        outcome = await self.outcome(body, **arguments)
        assert isinstance(outcome, BodyResult), outcome
        return outcome.value

    async def raised_by(self, body: Callable[..., Any], **arguments: Any) -> BaseException:
        return body_error(await self.outcome(body, **arguments))

    async def next_status(self) -> str:
        """Return the next status that a body reports."""
        async with asyncio.timeout(TIMEOUT):
            return await self.api.statuses.get()


@asynccontextmanager
async def isolating() -> AsyncGenerator[Isolation]:
    isolation = Isolation()
    yield isolation
    for process in isolation.started:
        process.request_stop()
        await body_outcome(process)


async def body_outcome(process: ProcessBody) -> BodyOutcome:
    async with asyncio.timeout(TIMEOUT):
        return await asyncio.shield(process.ended)


def body_error(outcome: BodyOutcome) -> BaseException:
    assert isinstance(outcome, BodyFailure), outcome
    return outcome.error


def process_exists(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return True


class ProcessWitness:
    """Observes whether a process lives: the process connects to `address`, and the connection ends with it."""

    def __init__(self, path: Path) -> None:
        self.address = str(path)
        self._connections: asyncio.Queue[asyncio.StreamReader] = asyncio.Queue()
        self._reader: asyncio.StreamReader | None = None

    async def wait_connected(self) -> None:
        async with asyncio.timeout(TIMEOUT):
            self._reader = await self._connections.get()

    async def wait_disconnected(self) -> None:
        assert self._reader is not None
        async with asyncio.timeout(TIMEOUT):
            assert await self._reader.read() == b""

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator["ProcessWitness"]:
        writers: list[asyncio.StreamWriter] = []

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            self._connections.put_nowait(reader)

        server = await asyncio.start_unix_server(connected, self.address)
        async with server:
            yield self
            for writer in writers:
                writer.close()
                await writer.wait_closed()
