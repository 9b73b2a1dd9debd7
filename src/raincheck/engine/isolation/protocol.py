"""A desk that is reached over frames: the end where the body is, and the calls that the other end lets through.

Messages between a body's process and the engine: JSON objects, each after its length in four bytes.

The process is not trusted: what it sends is JSON of a bounded size or it is a `BadFrame`.
"""

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import timedelta
from itertools import count
from operator import index
from types import NoneType
from typing import Any, NoReturn, TypeAlias, cast

from raincheck import errors
from raincheck._async import runs_in
from raincheck.core.payload import Json, Payload, encode
from raincheck.core.records import InputKind
from raincheck.engine.execution.api import Desk, Ended, StepTurn
from raincheck.errors import NotJson, RaincheckError, TooLarge

FRAME_LIMIT = 64 * 1024 * 1024
"""The most bytes of one message."""

_HEAD = 4
_RECEIVE = 1024 * 1024

Message: TypeAlias = dict[str, Any]
"""A message that came in: what JSON made of it, not looked at yet."""


class BadFrame(Exception):
    """What came over the connection is no message."""


def join(parts: Mapping[str, Payload]) -> Payload:
    """An object whose values are payloads, put in as they are: not written twice, nor counted as deeper than it is."""
    return Payload(b"{%b}" % b",".join(encode(name) + b":" + value for name, value in parts.items()))


def pack(parts: Mapping[str, Payload], *, what: str = "a message") -> bytes:
    """The frame of a message; `what` names it in the error.

    Raises:
        TooLarge: it is beyond the limit.
    """
    body = join(parts)
    if len(body) > FRAME_LIMIT:
        raise TooLarge(what, len(body), FRAME_LIMIT)
    return len(body).to_bytes(_HEAD, "big") + body


async def read_frame(reader: asyncio.StreamReader) -> Message | None:
    """The next message, or None when there will be no more.

    Raises:
        BadFrame: it is none.
    """
    try:
        return _unpack(await reader.readexactly(_size(await reader.readexactly(_HEAD))))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def receive_frame(connection: socket.socket) -> Message | None:
    """The same, for a thread that has nothing else to do."""
    head = _receive(connection, _HEAD)
    body = None if head is None else _receive(connection, _size(head))
    return None if body is None else _unpack(body)


def _receive(connection: socket.socket, size: int) -> bytes | None:
    received = bytearray()
    while len(received) < size:
        try:
            some = connection.recv(min(size - len(received), _RECEIVE))
        except OSError:
            return None
        if not some:
            return None
        received += some
    return bytes(received)


def _size(head: bytes) -> int:
    size = int.from_bytes(head, "big")
    if size > FRAME_LIMIT:
        raise BadFrame(f"a message of {size:,} bytes was announced, and {FRAME_LIMIT:,} are allowed")
    return size


def _unpack(body: bytes) -> Message:
    try:
        message: object = json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"a message is not JSON: {error}") from error
    if not isinstance(message, dict):
        raise BadFrame(f"a message is a JSON object, not {type(message).__name__}")
    return cast("Message", message)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def describe_error(error: Exception) -> dict[str, Json]:
    """One of our errors as JSON. Any other becomes the plainest of ours."""
    ours = next((kind for kind in type(error).__mro__ if errors.has(kind)), None)
    if ours is None:
        return {"type": RaincheckError.__name__, "message": plain_text(f"{type(error).__qualname__}: {error}")}
    facts = vars(error)
    return {
        "type": ours.__name__,
        "message": plain_text(str(error)),
        "attributes": {name: _as_json(value) for name, value in facts.items() if not name.startswith("_")},
        # JSON has no word for them, and whoever exceeds a quota wants to know when to try again.
        "durations": {name: value.total_seconds() for name, value in facts.items() if isinstance(value, timedelta)},
    }


def rebuild_error(document: object) -> RaincheckError:
    """The error that was described: the same class, the same message.

    Its own constructor is not called, which would want the facts that its message was made of.
    """
    known: Message = cast("Message", document) if isinstance(document, dict) else {}
    kind = getattr(errors, str(known.get("type")), None)
    if not (isinstance(kind, type) and issubclass(kind, RaincheckError)):
        kind = RaincheckError
    error = kind.__new__(kind)
    Exception.__init__(error, str(known.get("message", "")))
    for name, value in _items(known.get("attributes")):
        # Never something that the class itself has, so that nothing can be put in the place of a method.
        if not name.startswith("_") and not hasattr(kind, name):
            setattr(error, name, value)
    for name, value in _items(known.get("durations")):
        if name in vars(error) and isinstance(value, int | float) and abs(value) < timedelta.max.total_seconds():
            setattr(error, name, timedelta(seconds=value))
    return error


def plain_text(text: str) -> str:
    """A text that UTF-8 can carry. The name of a file, in an error, need not be one."""
    return text.encode(errors="backslashreplace").decode()


def _as_json(value: object) -> Json:
    try:
        encode(cast("Json", value))
    except NotJson:
        return None
    return cast("Json", value)


def _items(mapping: object) -> list[tuple[str, object]]:
    return list(cast("Message", mapping).items()) if isinstance(mapping, dict) else []


_ANYTHING = (object,)
_NUMBER = (int, float, NoneType)

CALLS: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "report": {"done": _NUMBER, "total": _NUMBER, "message": (str, NoneType)},
    "begin_step": {"name": (str,), "fingerprint": (str,)},
    "finish_step": {"name": (str,), "turn": (dict,), "fingerprint": (str,), "result": _ANYTHING},
    "drop_step": {"name": (str,), "occurrence": (int,)},
    "ask": {"kind": (str,), "name": (str,), "request": _ANYTHING},
    "sleep": {"seconds": (int, float), "name": (str, NoneType)},
    "set_variables": {"variables": (dict,)},
    "keep_artifact": {"name": (str,), "content": _ANYTHING},
    "spawn": {"tool": (str,), "arguments": (dict,), "name": (str, NoneType)},
    "child_outcome": {"child_id": (str,)},
    "start_after": {"tool": (str,), "arguments": (dict,), "result_as": (str,)},
}
"""What may be called from another process, with what."""


@dataclass(frozen=True, slots=True)
class DeskCall:
    """A call that came over the connection and is one that may be made."""

    id: int
    name: str
    arguments: tuple[Any, ...]

    async def put_to(self, desk: Desk) -> Json:
        """Make the call. Returns its result as JSON."""
        called = getattr(desk, self.name)(*self.arguments)
        result = None if called is None else await called
        return fields_of(result) if isinstance(result, StepTurn | Ended) else result


def read_call(message: Message) -> DeskCall:
    """The call in a message.

    Raises:
        BadFrame: there is none, or not one that a desk takes.
    """
    number, name, params = message.get("id"), message.get("call"), message.get("params")
    wanted = CALLS.get(name) if isinstance(name, str) else None
    if type(number) is not int or wanted is None or not isinstance(params, dict):
        raise BadFrame(
            f"a message is neither an ending nor a call: it has {', '.join(sorted(message))[:200] or 'nothing'}"
        )
    given = cast("Message", params)
    if given.keys() != wanted.keys() or not all(isinstance(given[one], kinds) for one, kinds in wanted.items()):
        raise BadFrame(f"{name!r} can't be called like that: it takes {', '.join(wanted) or 'nothing'}")
    return DeskCall(number, cast("str", name), tuple(_read_argument(one, given[one]) for one in wanted))


def _read_argument(name: str, value: Any) -> Any:  # noqa: ANN401 - JSON, and what is made of it
    try:
        if name == "kind":
            return InputKind(value)
        if name == "turn":
            turn = StepTurn(**value)
            return StepTurn(occurrence=index(turn.occurrence))
    except (ValueError, TypeError) as error:
        raise BadFrame(f"this is no {name}: {error}") from error
    return value


class RemoteDesk:
    """A `Desk` for a body in a process of its own. `send` writes a frame; `take` is told what comes in."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._numbers = count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._beginning: dict[int, str] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_stopped = False

    def take(self, reply: Message) -> None:
        """A reply came. May be called from any thread."""
        answer = self._answers.pop(reply["id"], None)
        if "stopped" in reply and answer is not None:
            self.is_stopped = True
        if answer is not None:
            # The body may be over, and its loop closed.
            with suppress(RuntimeError):
                answer.get_loop().call_soon_threadsafe(self._settle, reply["id"], answer, reply)

    def _settle(self, number: int, answer: "asyncio.Future[Any]", reply: Message) -> None:
        if answer.cancelled():
            self._drop_unbegun(number, reply.get("result"))
        _settle(answer, reply)

    def _drop_unbegun(self, number: int, turn: Any) -> None:  # noqa: ANN401 - the answer to any call
        """A call was given up just when its answer came: nobody is there to run the step, or to say that it is not."""
        name = self._beginning.pop(number, None)
        if name is not None and turn is not None and not turn["is_recorded"]:
            self.drop_step(name, turn["occurrence"])

    async def report(self, done: float | None, total: float | None, message: str | None) -> None:
        await self._ask("report", done=done, total=total, message=message)

    async def begin_step(self, name: str, fingerprint: str) -> StepTurn:
        return StepTurn(**await self._ask("begin_step", name=name, fingerprint=fingerprint))

    async def finish_step(self, name: str, turn: StepTurn, fingerprint: str, result: Json) -> None:
        await self._ask("finish_step", name=name, turn=fields_of(turn), fingerprint=fingerprint, result=result)

    def drop_step(self, name: str, occurrence: int) -> None:
        # Never sent by the thread of a plain function, which a signal may take out of the middle of a frame; and in
        # turn with the other calls, so at once if this is the loop that sends them.
        if self._loop is None:
            return
        params: dict[str, Json] = {"name": name, "occurrence": occurrence}
        if runs_in(self._loop):
            self._post("drop_step", params)
        else:
            self._loop.call_soon_threadsafe(lambda: self._post("drop_step", params))

    async def ask(self, kind: InputKind, name: str, request: Json) -> Json:
        return await self._ask("ask", kind=kind, name=name, request=request)

    async def sleep(self, seconds: float, name: str | None) -> None:
        await self._ask("sleep", seconds=seconds, name=name)

    async def set_variables(self, variables: Mapping[str, Json]) -> None:
        await self._ask("set_variables", variables=variables)

    async def keep_artifact(self, name: str, content: Json) -> None:
        await self._ask("keep_artifact", name=name, content=content)

    async def spawn(self, tool: str, arguments: Mapping[str, Json], name: str | None) -> str:
        return await self._ask("spawn", tool=tool, arguments=arguments, name=name)

    async def child_outcome(self, child_id: str) -> Ended:
        return Ended(**await self._ask("child_outcome", child_id=child_id))

    async def start_after(self, tool: str, arguments: Mapping[str, Json], result_as: str) -> str:
        return await self._ask("start_after", tool=tool, arguments=arguments, result_as=result_as)

    async def _ask(self, call: str, **params: Json) -> Any:  # noqa: ANN401 - what the call returns
        self._loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = self._loop.create_future()
        number = self._post(call, params, answer)
        try:
            result = await answer
        except asyncio.CancelledError:
            # Given up by whoever waited, say after a timeout of its own, and not by the desk: so the desk is told.
            if self._answers.pop(number, None) is not None:
                self._send(pack({"cancel": encode(number)}))
            elif answer.done() and not answer.cancelled() and answer.exception() is None:
                self._drop_unbegun(number, answer.result())
            raise
        self._beginning.pop(number, None)
        return result

    def _post(self, call: str, params: Mapping[str, Json], answer: "asyncio.Future[Any] | None" = None) -> int:
        number = next(self._numbers)
        given = join({name: encode(value, what=f"{name} (for {call})") for name, value in params.items()})
        frame = pack({"call": encode(call), "id": encode(number), "params": given}, what=f"a call of {call}")
        if answer is not None:
            self._answers[number] = answer
        if call == "begin_step":
            self._beginning[number] = str(params["name"])
        self._send(frame)
        return number


def fields_of(record: Any) -> dict[str, Any]:  # noqa: ANN401 - any dataclass
    """A record as an object: its fields as they are."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _settle(answer: "asyncio.Future[Any]", reply: Message) -> None:
    if answer.done():
        return
    if "result" in reply:
        answer.set_result(reply["result"])
    elif "error" in reply:
        answer.set_exception(rebuild_error(reply["error"]))
    else:
        answer.cancel()
