"""The protocol between a body's process and the engine: frames, allowed calls, and the task API over frames.

Messages are JSON objects, each after its length in four bytes. The process is not trusted: what it sends is JSON of a
bounded size, or it is a `BadFrame`.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import timedelta
from itertools import count
from operator import index
from types import NoneType
from typing import Any, BinaryIO, NoReturn, TypeAlias, cast

from raincheck import errors
from raincheck._async import is_running_in
from raincheck.core.records import InputKind
from raincheck.core.values import Json, Payload, encode
from raincheck.engine.execution.context import StepStart, TaskApi
from raincheck.engine.inputs import TaskOutcome
from raincheck.errors import NotJson, RaincheckError, TooLarge

FRAME_LIMIT = 64 * 1024 * 1024
"""Maximum bytes of one message."""

_HEAD = 4

Message: TypeAlias = dict[str, Any]
"""A received message: decoded JSON, not validated yet."""


class BadFrame(Exception):
    """The received data is not a valid message."""


def join_payloads(parts: Mapping[str, Payload]) -> Payload:
    """Join payloads into an object unchanged: they are not encoded again, and their nesting depth does not grow."""
    return Payload(b"{%b}" % b",".join(encode(name) + b":" + value for name, value in parts.items()))


def pack_frame(parts: Mapping[str, Payload], *, what: str = "a message") -> bytes:
    """Return the frame of a message; `what` names it in the error.

    Raises:
        TooLarge: it exceeds the limit.
    """
    body = join_payloads(parts)
    if len(body) > FRAME_LIMIT:
        raise TooLarge(what, len(body), FRAME_LIMIT)
    return len(body).to_bytes(_HEAD, "big") + body


async def read_frame(reader: asyncio.StreamReader) -> Message | None:
    """Read the next message; None at the end of the connection.

    Raises:
        BadFrame: the data is not a valid message.
    """
    try:
        return _unpack(await reader.readexactly(_size(await reader.readexactly(_HEAD))))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def receive_frame(stream: BinaryIO) -> Message | None:
    """Read the next message in a thread, blocking; None at the end of the connection."""
    try:
        head = stream.read(_HEAD)
        body = stream.read(_size(head))
    except OSError:
        return None
    is_whole = len(head) == _HEAD and len(body) == _size(head)
    return _unpack(body) if is_whole else None


def _size(head: bytes) -> int:
    size = int.from_bytes(head, "big")
    if size > FRAME_LIMIT:
        raise BadFrame(f"a message of {size:,} bytes was announced, but at most {FRAME_LIMIT:,} are allowed")
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
    """Return one of our errors as JSON. Any other error becomes a plain `RaincheckError`."""
    raincheck_type = next((kind for kind in type(error).__mro__ if errors.is_raincheck_error(kind)), None)
    if raincheck_type is None:
        return {"type": RaincheckError.__name__, "message": escape_surrogates(f"{type(error).__qualname__}: {error}")}
    attributes = vars(error)
    return {
        "type": raincheck_type.__name__,
        "message": escape_surrogates(str(error)),
        "attributes": {name: _as_json(value) for name, value in attributes.items() if not name.startswith("_")},
        # JSON has no type for durations, and a caller that exceeds a quota needs to know when to try again.
        "durations": {
            name: value.total_seconds() for name, value in attributes.items() if isinstance(value, timedelta)
        },
    }


def rebuild_error(document: object) -> RaincheckError:
    """Rebuild a described error: the same class, the same message.

    The class's constructor is not called: it would need the facts that the message was made of.
    """
    fields: Message = cast("Message", document) if isinstance(document, dict) else {}
    kind = getattr(errors, str(fields.get("type")), None)
    if not (isinstance(kind, type) and issubclass(kind, RaincheckError)):
        kind = RaincheckError
    error = kind.__new__(kind)
    Exception.__init__(error, str(fields.get("message", "")))
    for name, value in _items(fields.get("attributes")):
        # Never an attribute of the class itself, so that no method can be replaced.
        if not name.startswith("_") and not hasattr(kind, name):
            setattr(error, name, value)
    for name, value in _items(fields.get("durations")):
        if name in vars(error) and isinstance(value, int | float) and abs(value) < timedelta.max.total_seconds():
            setattr(error, name, timedelta(seconds=value))
    return error


def escape_surrogates(text: str) -> str:
    """Return the text with lone surrogates escaped for UTF-8. The name of a file, in an error, may hold some."""
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

ALLOWED_CALLS: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "report": {"done": _NUMBER, "total": _NUMBER, "message": (str, NoneType)},
    "begin_step": {"name": (str,), "fingerprint": (str,)},
    "finish_step": {"name": (str,), "start": (dict,), "fingerprint": (str,), "result": _ANYTHING},
    "drop_step": {"name": (str,), "occurrence": (int,)},
    "ask": {"kind": (str,), "name": (str,), "request": _ANYTHING},
    "sleep": {"seconds": (int, float), "name": (str, NoneType)},
    "set_variables": {"variables": (dict,)},
    "store_artifact": {"name": (str,), "content": _ANYTHING},
    "spawn": {"tool": (str,), "arguments": (dict,), "name": (str, NoneType)},
    "child_outcome": {"child_id": (str,)},
    "start_after": {"tool": (str,), "arguments": (dict,), "result_as": (str,)},
}
"""The calls that another process may make, with the types of their parameters."""


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A received call that is allowed."""

    id: int
    name: str
    arguments: tuple[Any, ...]

    async def call_on(self, api: TaskApi) -> Json:
        """Make the call. Returns its result as JSON."""
        called = getattr(api, self.name)(*self.arguments)
        result = None if called is None else await called
        return to_fields(result) if isinstance(result, StepStart | TaskOutcome) else result


def read_call(message: Message) -> ApiCall:
    """Read the call in a message.

    Raises:
        BadFrame: there is none, or not one that the task API accepts.
    """
    number, name, params = message.get("id"), message.get("call"), message.get("params")
    parameters = ALLOWED_CALLS.get(name) if isinstance(name, str) else None
    if type(number) is not int or parameters is None or not isinstance(params, dict):
        raise BadFrame(
            f"a message is neither a final message nor a call: it has {', '.join(sorted(message))[:200] or 'nothing'}"
        )
    arguments = cast("Message", params)
    if arguments.keys() != parameters.keys() or not all(
        isinstance(arguments[parameter], types) for parameter, types in parameters.items()
    ):
        raise BadFrame(f"{name!r} was called with invalid arguments: it takes {', '.join(parameters) or 'nothing'}")
    return ApiCall(
        number, cast("str", name), tuple(_read_argument(parameter, arguments[parameter]) for parameter in parameters)
    )


def _read_argument(name: str, value: Any) -> Any:  # noqa: ANN401 - JSON, and values made of it
    try:
        if name == "kind":
            return InputKind(value)
        if name == "result":
            return encode(value, what="the result of a step")
        if name == "start":
            start = StepStart(**value)
            return StepStart(occurrence=index(start.occurrence))
    except (ValueError, TypeError) as error:
        raise BadFrame(f"invalid {name}: {error}") from error
    return value


class RemoteTaskApi:
    """The `TaskApi` of a body in its own process. `send` writes a frame; `on_reply` receives replies."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._numbers = count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._pending_steps: dict[int, str] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_stopped = False

    def on_reply(self, reply: Message) -> None:
        """Handle a reply. May be called from any thread."""
        answer = self._answers.pop(reply["id"], None)
        if answer is not None:
            # An answer that the body cancelled itself does not mean that the attempt has to stop.
            self.is_stopped |= "stopped" in reply and not answer.cancelled()
            # The body may be over, and its loop closed.
            with suppress(RuntimeError):
                answer.get_loop().call_soon_threadsafe(self._settle, reply["id"], answer, reply)

    def _settle(self, number: int, answer: "asyncio.Future[Any]", reply: Message) -> None:
        if answer.cancelled():
            self._drop_orphaned_step(number, reply.get("result"))
        _settle(answer, reply)

    def _drop_orphaned_step(self, number: int, start: Any) -> None:  # noqa: ANN401 - the answer to any call
        """Drop a step whose call was cancelled just when its answer arrived: no code is left to run it or report it."""
        name = self._pending_steps.pop(number, None)
        if name is not None and start is not None and not start["is_recorded"]:
            self.drop_step(name, start["occurrence"])

    async def report(self, done: float | None, total: float | None, message: str | None) -> None:
        await self._call("report", done=done, total=total, message=message)

    async def begin_step(self, name: str, fingerprint: str) -> StepStart:
        return StepStart(**await self._call("begin_step", name=name, fingerprint=fingerprint))

    async def finish_step(self, name: str, start: StepStart, fingerprint: str, result: Payload) -> None:
        await self._call("finish_step", name=name, start=to_fields(start), fingerprint=fingerprint, result=result)

    def drop_step(self, name: str, occurrence: int) -> None:
        # Never sent by the thread of a plain function, which a signal may interrupt in the middle of a frame. It stays
        # in order with the other calls, so it is sent at once if this is the loop that sends them.
        if self._loop is None:
            return
        params: dict[str, Json | Payload] = {"name": name, "occurrence": occurrence}
        if is_running_in(self._loop):
            self._send_call("drop_step", params)
        else:
            self._loop.call_soon_threadsafe(lambda: self._send_call("drop_step", params))

    async def ask(self, kind: InputKind, name: str, request: Json) -> Json:
        return await self._call("ask", kind=kind, name=name, request=request)

    async def sleep(self, seconds: float, name: str | None) -> None:
        await self._call("sleep", seconds=seconds, name=name)

    async def set_variables(self, variables: Mapping[str, Json]) -> None:
        await self._call("set_variables", variables=variables)

    async def store_artifact(self, name: str, content: Json) -> None:
        await self._call("store_artifact", name=name, content=content)

    async def spawn(self, tool: str, arguments: Mapping[str, Json], name: str | None) -> str:
        return await self._call("spawn", tool=tool, arguments=arguments, name=name)

    async def child_outcome(self, child_id: str) -> TaskOutcome:
        return TaskOutcome(**await self._call("child_outcome", child_id=child_id))

    async def start_after(self, tool: str, arguments: Mapping[str, Json], result_as: str) -> str:
        return await self._call("start_after", tool=tool, arguments=arguments, result_as=result_as)

    async def _call(self, call: str, **params: Json | Payload) -> Any:  # noqa: ANN401 - the result of the call
        self._loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = self._loop.create_future()
        number = self._send_call(call, params, answer)
        try:
            result = await answer
        except asyncio.CancelledError:
            # Cancelled by the waiter, for example after a timeout, and not by the task API, which has to be notified.
            if number in self._answers:
                self._send(pack_frame({"cancel": encode(number)}))
                if number not in self._pending_steps:
                    # There may be no reply to a call that is cancelled before it runs. Only a step's reply matters.
                    self._answers.pop(number, None)
            elif answer.done() and not answer.cancelled() and answer.exception() is None:
                self._drop_orphaned_step(number, answer.result())
            raise
        self._pending_steps.pop(number, None)
        return result

    def _send_call(
        self, call: str, params: Mapping[str, Json | Payload], answer: "asyncio.Future[Any] | None" = None
    ) -> int:
        number = next(self._numbers)
        encoded = join_payloads(
            {
                # The result of a step is encoded already. Any other bytes are not JSON.
                name: Payload(value)
                if call == "finish_step" and name == "result" and isinstance(value, bytes)
                else encode(value, what=f"{name} (for {call})")
                for name, value in params.items()
            }
        )
        frame = pack_frame({"call": encode(call), "id": encode(number), "params": encoded}, what=f"a call of {call}")
        if answer is not None:
            self._answers[number] = answer
        if call == "begin_step":
            self._pending_steps[number] = str(params["name"])
        self._send(frame)
        return number


def to_fields(record: Any) -> dict[str, Any]:  # noqa: ANN401 - any dataclass
    """Return a record as an object with its fields unchanged."""
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
