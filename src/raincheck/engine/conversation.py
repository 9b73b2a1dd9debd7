"""The engine's side of the connection to a body's process: it answers the body's calls at the desk."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, cast

from raincheck.core.payload import encode
from raincheck.engine.desk import Desk
from raincheck.engine.frames import BadFrame, Message, describe_error, pack, read_frame
from raincheck.engine.remote_desk import DeskCall, read_call
from raincheck.errors import RaincheckError
from raincheck.tracebacks import text_logger

MOST_CALLS = 10_000
"""How many calls of one body may wait for their answers."""

ENDINGS = frozenset({"returned", "raised", "stopped"})

logger = text_logger(__name__)


async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, desk: Desk) -> Message | None:
    """Answer the body's calls until it says how it ended. Returns that, or None if it doesn't.

    Calls that are not answered by then are cancelled.

    Raises:
        BadFrame: the process said something that can't be understood, or did something that it may not.
    """
    answering: dict[int, asyncio.Task[None]] = {}
    begun: dict[int, tuple[str, int]] = {}
    try:
        while (message := await read_frame(reader)) is not None:
            if not ENDINGS.isdisjoint(message):
                return message
            if "cancel" in message:
                _cancel(answering, message["cancel"])
                # It crossed the answer on the way, so the body does not know that the step is taken to be under way.
                if message["cancel"] in begun:
                    desk.drop_step(*begun.pop(message["cancel"]))
                continue
            call = read_call(message)
            if call.id in answering or len(answering) >= MOST_CALLS:
                raise BadFrame(f"a call has the number of another, or more than {MOST_CALLS:,} wait for an answer")
            job = answering[call.id] = asyncio.create_task(
                _answer(call, desk, writer, begun), name=f"call of {call.name}"
            )
            job.add_done_callback(partial(_forget, answering, call.id))
        return None
    finally:
        left = set(answering.values())
        for job in left:
            job.cancel()
        await wait_out(*left)


async def wait_out(*futures: "asyncio.Future[Any]") -> None:
    """Wait until all are done, whoever cancels the waiting meanwhile."""
    while left := {future for future in futures if not future.done()}:
        with suppress(asyncio.CancelledError):
            await asyncio.wait(left)


async def _answer(call: DeskCall, desk: Desk, writer: asyncio.StreamWriter, begun: dict[int, tuple[str, int]]) -> None:
    number = encode(call.id)
    try:
        answer = await call.put_to(desk)
        result = encode(answer, what=f"the answer to {call.name}")
        if call.name == "begin_step" and isinstance(answer, Mapping) and not answer["is_recorded"]:
            begun[call.id] = call.arguments[0], cast("int", answer["occurrence"])
        frame = pack({"id": number, "result": result}, what=f"the answer to {call.name}")
    except Exception as error:
        if not isinstance(error, RaincheckError):
            logger.exception("a call that came from the process of a body failed")
        frame = pack({"id": number, "error": encode(describe_error(error))})
    except BaseException:
        # The attempt has to stop, or the body gave up waiting, and then nobody reads this.
        writer.write(pack({"id": number, "stopped": encode(True)}))
        raise
    writer.write(frame)
    with suppress(ConnectionError):
        await writer.drain()


def _cancel(answering: "Mapping[int, asyncio.Task[None]]", number: object) -> None:
    # An answer may have crossed it on the way: then there is nothing to cancel.
    job = answering.get(number) if isinstance(number, int) else None
    if job is not None:
        job.cancel()


def _forget(answering: "dict[int, asyncio.Task[None]]", number: int, job: "asyncio.Task[None]") -> None:  # noqa: ARG001 - asyncio passes it
    del answering[number]
