"""Checks of task results: `tasks/result`, and requests that wait for it."""

from raincheck.conformance.caller import ConformanceClient
from raincheck.conformance.check import check
from raincheck.conformance.messages import Message, RpcResponse, shorten
from raincheck.conformance.outcome import RequirementLevel, RequirementNotMet
from raincheck.conformance.shapes import TERMINAL, expect_related, expect_result


@check(
    "g1-result-blocks",
    RequirementLevel.MUST,
    "Result Retrieval",
    "tasks/result of a task that works is answered when the task has ended, and not before.",
    "calls",
    "slow",
)
async def result_blocks(caller: ConformanceClient) -> None:
    begun = await caller.start_task("slow")
    pending = await caller.request_result(begun.id)
    reply = await caller.connection.wait_for_reply(pending, caller.result_timeout)
    status = await caller.get_status(begun.id)
    if status not in TERMINAL:
        raise RequirementNotMet(f"tasks/result was answered with {reply}, and the task is {shorten(status)}")
    expect_result(reply)


@check(
    "g1-result-others-served",
    RequirementLevel.MUST,
    "Retrieving Task Results",
    "While a caller waits in tasks/result, its other requests on the same connection are answered.",
    "calls",
    "slow",
)
async def result_others_served(caller: ConformanceClient) -> None:
    begun = await caller.start_task("slow")
    await caller.request_result(begun.id)
    await caller.connection.request("ping")
    status = await caller.get_status(begun.id)
    if status in TERMINAL:
        raise RequirementNotMet(
            f"a ping and a tasks/get were answered when the task was {status}: too late to be of use"
        )


@check(
    "g1-result-same-as-plain",
    RequirementLevel.MUST,
    "Result Retrieval",
    "tasks/result gives what the call would have given without a task.",
    "calls",
    "quick",
)
async def result_same_as_plain(caller: ConformanceClient) -> None:
    caller.require_optional_task("quick")
    plain = _comparable(await caller.call("quick"))
    result = _comparable(await caller.get_result((await caller.start_task("quick")).id))
    if result != plain:
        raise RequirementNotMet(f"the result is {shorten(result)}, and without a task it is {shorten(plain)}")


def _comparable(reply: RpcResponse) -> Message:
    """Return a result without `_meta`, which may legitimately differ, and with default values filled in."""
    return {"isError": False, **{key: value for key, value in expect_result(reply).items() if key != "_meta"}}


@check(
    "g1-result-related-task",
    RequirementLevel.MUST,
    "Related Task Metadata",
    "The answer of tasks/result names its task in _meta.",
    "calls",
    "quick",
)
async def result_related_task(caller: ConformanceClient) -> None:
    begun = await caller.start_task("quick")
    expect_related(expect_result(await caller.get_result(begun.id)), begun.id, "the answer of tasks/result")


@check(
    "g1-result-again",
    RequirementLevel.MUST,
    "Result Retrieval",
    "Whoever asks for a result once more gets the same.",
    "calls",
    "quick",
)
async def result_again(caller: ConformanceClient) -> None:
    begun = await caller.start_task("quick")
    first, second = [_comparable(await caller.get_result(begun.id)) for _ in range(2)]
    if first != second:
        raise RequirementNotMet(f"the result was {shorten(first)}, and then {shorten(second)}")


@check(
    "g1-result-two-waiters",
    RequirementLevel.MUST,
    "Result Retrieval",
    "Two that wait for the same result both get it.",
    "calls",
    "slow",
)
async def result_two_waiters(caller: ConformanceClient) -> None:
    begun = await caller.start_task("slow")
    waiting = [await caller.request_result(begun.id) for _ in range(2)]
    first, second = [_comparable(await caller.connection.wait_for_reply(one, caller.result_timeout)) for one in waiting]
    if first != second:
        raise RequirementNotMet(f"one got {shorten(first)}, and the other {shorten(second)}")


@check(
    "g1-result-given-up",
    RequirementLevel.SHOULD_NOT,
    "Retrieving Task Results",
    "A caller that gives up a tasks/result (notifications/cancelled) does not cancel the task with it.",
    "calls",
    "slow",
)
async def result_given_up(caller: ConformanceClient) -> None:
    begun = await caller.start_task("slow")
    pending = await caller.request_result(begun.id)
    await caller.get_status(begun.id)  # so that the server receives tasks/result before its cancellation
    await caller.connection.notify("notifications/cancelled", {"requestId": pending.id})
    await caller.wait_for_status(begun.id, {"completed"})
    expect_result(await caller.get_result(begun.id))


@check(
    "g1-result-disconnected",
    RequirementLevel.SHOULD_NOT,
    "Transports: Sending Messages to the Server",
    "A connection that breaks during tasks/result does not cancel the task.",
    "calls",
    "slow",
    "http",
)
async def result_disconnected(caller: ConformanceClient) -> None:
    begun = await caller.start_task("slow")
    pending = await caller.request_result(begun.id)
    await caller.get_status(begun.id)
    await caller.connection.abort_request(pending)
    await caller.wait_for_status(begun.id, {"completed"})
    expect_result(await caller.get_result(begun.id))


@check(
    "g1-result-others-leave",
    RequirementLevel.MUST,
    "Result Retrieval",
    "A client that leaves takes nothing from the others: their tasks go on, and new ones begin.",
    "calls",
    "slow",
    "http",
)
async def others_leave(caller: ConformanceClient) -> None:
    async with caller.open_second() as guest:
        begun = await caller.start_task("slow")
        await guest.start_task("slow")
    second = await caller.start_task("slow")
    for one in (begun, second):
        await caller.wait_for_status(one.id, {"completed"})


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
