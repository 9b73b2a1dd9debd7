"""Checks of task results: `tasks/result`, and requests that wait for it."""

from raincheck.conformance.caller import ConformanceClient
from raincheck.conformance.check import check
from raincheck.conformance.messages import Message, RpcResponse, shorten
from raincheck.conformance.outcome import RequirementLevel, RequirementNotMet
from raincheck.conformance.shapes import TERMINAL, expect_related, expect_result


@check(
    "v2025-result-blocks",
    RequirementLevel.MUST,
    "Result Retrieval",
    "tasks/result of a running task is answered when the task has ended, and not before.",
    "calls",
    "slow",
)
async def result_blocks(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("slow")
    pending = await caller.request_result(new_task.id)
    reply = await caller.connection.wait_for_reply(pending, caller.result_timeout)
    status = await caller.get_status(new_task.id)
    if status not in TERMINAL:
        raise RequirementNotMet(f"tasks/result returned {reply} while the task is {shorten(status)}")
    expect_result(reply)


@check(
    "v2025-result-concurrent-requests",
    RequirementLevel.MUST,
    "Retrieving Task Results",
    "While tasks/result is pending, other requests on the same connection are answered.",
    "calls",
    "slow",
)
async def result_concurrent_requests(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("slow")
    await caller.request_result(new_task.id)
    await caller.connection.request("ping")
    status = await caller.get_status(new_task.id)
    if status in TERMINAL:
        raise RequirementNotMet(
            f"a ping and a tasks/get were answered only when the task was {status}: they waited for tasks/result"
        )


@check(
    "v2025-result-same-as-plain",
    RequirementLevel.MUST,
    "Result Retrieval",
    "tasks/result returns what the call would have returned without a task.",
    "calls",
    "quick",
)
async def result_same_as_plain(caller: ConformanceClient) -> None:
    caller.require_optional_task("quick")
    plain = _comparable(await caller.call("quick"))
    result = _comparable(await caller.get_result((await caller.start_task("quick")).id))
    if result != plain:
        raise RequirementNotMet(f"the result is {shorten(result)}, but without a task it is {shorten(plain)}")


def _comparable(reply: RpcResponse) -> Message:
    """Return a result without `_meta`, which may legitimately differ, and with default values filled in."""
    return {"isError": False, **{key: value for key, value in expect_result(reply).items() if key != "_meta"}}


@check(
    "v2025-result-related-task",
    RequirementLevel.MUST,
    "Related Task Metadata",
    "The result of tasks/result names its task in _meta.",
    "calls",
    "quick",
)
async def result_related_task(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("quick")
    expect_related(expect_result(await caller.get_result(new_task.id)), new_task.id, "the result of tasks/result")


@check(
    "v2025-result-again",
    RequirementLevel.MUST,
    "Result Retrieval",
    "A second tasks/result returns the same result.",
    "calls",
    "quick",
)
async def result_again(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("quick")
    first, second = [_comparable(await caller.get_result(new_task.id)) for _ in range(2)]
    if first != second:
        raise RequirementNotMet(f"the first result was {shorten(first)}, and the second {shorten(second)}")


@check(
    "v2025-result-two-waiters",
    RequirementLevel.MUST,
    "Result Retrieval",
    "Two requests that wait for the same result both get it.",
    "calls",
    "slow",
)
async def result_two_waiters(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("slow")
    waiting = [await caller.request_result(new_task.id) for _ in range(2)]
    first, second = [
        _comparable(await caller.connection.wait_for_reply(pending, caller.result_timeout)) for pending in waiting
    ]
    if first != second:
        raise RequirementNotMet(f"one request got {shorten(first)}, and the other {shorten(second)}")


@check(
    "v2025-result-abandoned",
    RequirementLevel.SHOULD_NOT,
    "Retrieving Task Results",
    "A client that cancels its tasks/result request (notifications/cancelled) does not cancel the task.",
    "calls",
    "slow",
)
async def result_abandoned(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("slow")
    pending = await caller.request_result(new_task.id)
    await caller.get_status(new_task.id)  # so that the server receives tasks/result before its cancellation
    await caller.connection.notify("notifications/cancelled", {"requestId": pending.id})
    await caller.wait_for_status(new_task.id, {"completed"})
    expect_result(await caller.get_result(new_task.id))


@check(
    "v2025-result-disconnected",
    RequirementLevel.SHOULD_NOT,
    "Transports: Sending Messages to the Server",
    "A connection that breaks during tasks/result does not cancel the task.",
    "calls",
    "slow",
    "http",
)
async def result_disconnected(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("slow")
    pending = await caller.request_result(new_task.id)
    await caller.get_status(new_task.id)
    await caller.connection.abort_request(pending)
    await caller.wait_for_status(new_task.id, {"completed"})
    expect_result(await caller.get_result(new_task.id))


@check(
    "v2025-result-other-disconnects",
    RequirementLevel.MUST,
    "Result Retrieval",
    "A client that disconnects does not affect other clients: their tasks continue, and they can start new ones.",
    "calls",
    "slow",
    "http",
)
async def other_disconnects(caller: ConformanceClient) -> None:
    async with caller.open_second() as other:
        new_task = await caller.start_task("slow")
        await other.start_task("slow")
    second = await caller.start_task("slow")
    for task in (new_task, second):
        await caller.wait_for_status(task.id, {"completed"})


CHECKS = (
    result_blocks,
    result_concurrent_requests,
    result_same_as_plain,
    result_related_task,
    result_again,
    result_two_waiters,
    result_abandoned,
    result_disconnected,
    other_disconnects,
)
