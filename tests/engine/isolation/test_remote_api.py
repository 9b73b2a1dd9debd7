"""The task API of a body in its own process, without the process."""

import asyncio
import json
from collections.abc import Callable

import pytest

from raincheck.engine.isolation.protocol import Message, RemoteTaskApi

pytestmark = pytest.mark.anyio

STARTED = {"occurrence": 2, "is_recorded": False, "result": None}


def answer_then_cancel(api: RemoteTaskApi, call: "asyncio.Task[object]", reply: Message) -> None:
    api.on_reply(reply)
    call.cancel()


def cancel_then_answer(api: RemoteTaskApi, call: "asyncio.Task[object]", reply: Message) -> None:
    call.cancel()
    asyncio.get_running_loop().call_soon(api.on_reply, reply)


@pytest.mark.parametrize("cross", [answer_then_cancel, cancel_then_answer])
async def test_a_step_whose_answer_crosses_its_cancellation_is_dropped(
    cross: Callable[[RemoteTaskApi, "asyncio.Task[object]", Message], None],
) -> None:
    sent: list[Message] = []
    api = RemoteTaskApi(lambda frame: sent.append(json.loads(frame[4:])))
    call: asyncio.Task[object] = asyncio.create_task(api.begin_step("load", "step"))
    await asyncio.sleep(0)
    cross(api, call, {"id": sent[0]["id"], "result": STARTED})
    await asyncio.wait([call])
    for _ in range(3):
        await asyncio.sleep(0)
    assert call.cancelled()
    assert [message.get("params") for message in sent if message.get("call") == "drop_step"] == [
        {"name": "load", "occurrence": 2}
    ]


async def test_only_a_refusal_that_the_body_did_not_cause_stops_it() -> None:
    sent: list[Message] = []
    api = RemoteTaskApi(lambda frame: sent.append(json.loads(frame[4:])))
    calls = [asyncio.create_task(api.report(1, 2, None)) for _ in range(2)]
    await asyncio.sleep(0)
    calls[0].cancel()
    await asyncio.wait([calls[0]])
    api.on_reply({"id": sent[0]["id"], "stopped": True})
    assert not api.is_stopped
    api.on_reply({"id": sent[1]["id"], "stopped": True})
    await asyncio.wait(calls)
    assert api.is_stopped
