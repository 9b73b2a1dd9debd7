"""The results of tasks: `tasks/result`, and who waits for one."""

from raincheck.conformance.caller import Caller
from raincheck.conformance.check import check
from raincheck.conformance.messages import Message, Reply, shorten
from raincheck.conformance.outcome import Level, Unmet
from raincheck.conformance.shapes import TERMINAL, expect_related, expect_result


@check(
    "g1-result-blocks",
    Level.MUST,
    "Result Retrieval",
    "tasks/result of a task that works is answered when the task has ended, and not before.",
    "calls",
    "slow",
)
async def result_blocks(caller: Caller) -> None:
    begun = await caller.begin("slow")
    pending = await caller.wait(begun.id)
    reply = await caller.connection.reply_to(pending, caller.patience)
    status = await caller.status(begun.id)
    if status not in TERMINAL:
        raise Unmet(f"tasks/result was answered with {reply}, and the task is {shorten(status)}")
    expect_result(reply)


@check(
    "g1-result-others-served",
    Level.MUST,
    "Retrieving Task Results",
    "While a caller waits in tasks/result, its other requests on the same connection are answered.",
    "calls",
    "slow",
)
async def result_others_served(caller: Caller) -> None:
    begun = await caller.begin("slow")
    await caller.wait(begun.id)
    await caller.connection.request("ping")
    status = await caller.status(begun.id)
    if status in TERMINAL:
        raise Unmet(f"a ping and a tasks/get were answered when the task was {status}: too late to be of use")


@check(
    "g1-result-same-as-plain",
    Level.MUST,
    "Result Retrieval",
    "tasks/result gives what the call would have given without a task.",
    "calls",
    "quick",
)
async def result_same_as_plain(caller: Caller) -> None:
    caller.need_optional("quick")
    plain = _comparable(await caller.call("quick"))
    result = _comparable(await caller.result((await caller.begin("quick")).id))
    if result != plain:
        raise Unmet(f"the result is {shorten(result)}, and without a task it is {shorten(plain)}")


def _comparable(reply: Reply) -> Message:
    """A result without `_meta`, which differs by right, and with what is true where nothing is said."""
    return {"isError": False, **{key: value for key, value in expect_result(reply).items() if key != "_meta"}}


@check(
    "g1-result-related-task",
    Level.MUST,
    "Related Task Metadata",
    "The answer of tasks/result names its task in _meta.",
    "calls",
    "quick",
)
async def result_related_task(caller: Caller) -> None:
    begun = await caller.begin("quick")
    expect_related(expect_result(await caller.result(begun.id)), begun.id, "the answer of tasks/result")


@check(
    "g1-result-again",
    Level.MUST,
    "Result Retrieval",
    "Whoever asks for a result once more gets the same.",
    "calls",
    "quick",
)
async def result_again(caller: Caller) -> None:
    begun = await caller.begin("quick")
    first, second = [_comparable(await caller.result(begun.id)) for _ in range(2)]
    if first != second:
        raise Unmet(f"the result was {shorten(first)}, and then {shorten(second)}")


@check(
    "g1-result-two-waiters",
    Level.MUST,
    "Result Retrieval",
    "Two that wait for the same result both get it.",
    "calls",
    "slow",
)
async def result_two_waiters(caller: Caller) -> None:
    begun = await caller.begin("slow")
    waiting = [await caller.wait(begun.id) for _ in range(2)]
    first, second = [_comparable(await caller.connection.reply_to(one, caller.patience)) for one in waiting]
    if first != second:
        raise Unmet(f"one got {shorten(first)}, and the other {shorten(second)}")


@check(
    "g1-result-given-up",
    Level.SHOULD_NOT,
    "Retrieving Task Results",
    "A caller that gives up a tasks/result (notifications/cancelled) does not cancel the task with it.",
    "calls",
    "slow",
)
async def result_given_up(caller: Caller) -> None:
    begun = await caller.begin("slow")
    pending = await caller.wait(begun.id)
    await caller.status(begun.id)  # so that the server has seen the one before it is told to forget it
    await caller.connection.notify("notifications/cancelled", {"requestId": pending.id})
    await caller.until(begun.id, {"completed"})
    expect_result(await caller.result(begun.id))


@check(
    "g1-result-disconnected",
    Level.SHOULD_NOT,
    "Transports: Sending Messages to the Server",
    "A connection that breaks during tasks/result does not cancel the task.",
    "calls",
    "slow",
    "http",
)
async def result_disconnected(caller: Caller) -> None:
    begun = await caller.begin("slow")
    pending = await caller.wait(begun.id)
    await caller.status(begun.id)
    await caller.connection.drop(pending)
    await caller.until(begun.id, {"completed"})
    expect_result(await caller.result(begun.id))


@check(
    "g1-result-others-leave",
    Level.MUST,
    "Result Retrieval",
    "A client that leaves takes nothing from the others: their tasks go on, and new ones begin.",
    "calls",
    "slow",
    "http",
)
async def others_leave(caller: Caller) -> None:
    async with caller.beside() as guest:
        begun = await caller.begin("slow")
        await guest.begin("slow")
    second = await caller.begin("slow")
    for one in (begun, second):
        await caller.until(one.id, {"completed"})


CHECKS = (
    result_blocks,
    result_others_served,
    result_same_as_plain,
    result_related_task,
    result_again,
    result_two_waiters,
    result_given_up,
    result_disconnected,
    others_leave,
)
