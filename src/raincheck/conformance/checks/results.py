"""Checks of task results: `tasks/result`, and requests that wait for it."""

from raincheck.conformance.caller import ConformanceClient
from raincheck.conformance.check import MUST, SHOULD_NOT, Topic
from raincheck.conformance.connection import Message, RpcResponse, shorten
from raincheck.conformance.requirements import TERMINAL, expect, expect_related, expect_result

topic = Topic("Results", "Result Retrieval", "calls")


@topic.check(MUST, "v2025-result-blocks", "slow")
async def result_blocks(caller: ConformanceClient) -> None:
    """tasks/result of a running task is answered when the task has ended, and not before."""
    new_task = await caller.start_task("slow")
    pending = await caller.request_result(new_task.id)
    reply = await caller.wait_for_reply(pending, caller.result_timeout)
    status = await caller.get_status(new_task.id)
    expect(status in TERMINAL, f"tasks/result returned {reply} while the task is {shorten(status)}")
    expect_result(reply)


@topic.check(MUST, "v2025-result-concurrent-requests", "slow", section="Retrieving Task Results")
async def result_concurrent_requests(caller: ConformanceClient) -> None:
    """While tasks/result is pending, other requests on the same connection are answered."""
    new_task = await caller.start_task("slow")
    await caller.request_result(new_task.id)
    await caller.request("ping")
    status = await caller.get_status(new_task.id)
    expect(
        status not in TERMINAL,
        f"a ping and a tasks/get were answered only when the task was {status}: they waited for tasks/result",
    )


@topic.check(MUST, "v2025-result-same-as-plain", "quick")
async def result_same_as_plain(caller: ConformanceClient) -> None:
    """tasks/result returns what the call would have returned without a task."""
    caller.require_optional_task("quick")
    plain = _comparable(await caller.call("quick"))
    result = _comparable(await caller.get_result((await caller.start_task("quick")).id))
    expect(result == plain, f"the result is {shorten(result)}, but without a task it is {shorten(plain)}")


def _comparable(reply: RpcResponse) -> Message:
    """Return a result without `_meta`, which may legitimately differ, and with default values filled in."""
    return {"isError": False, **{key: value for key, value in expect_result(reply).items() if key != "_meta"}}


@topic.check(MUST, "v2025-result-related-task", "quick", section="Related Task Metadata")
async def result_related_task(caller: ConformanceClient) -> None:
    """The result of tasks/result names its task in _meta."""
    new_task = await caller.start_task("quick")
    expect_related(expect_result(await caller.get_result(new_task.id)), new_task.id, "the result of tasks/result")


@topic.check(MUST, "v2025-result-again", "quick")
async def result_again(caller: ConformanceClient) -> None:
    """A second tasks/result returns the same result."""
    new_task = await caller.start_task("quick")
    first, second = [_comparable(await caller.get_result(new_task.id)) for _ in range(2)]
    expect(first == second, f"the first result was {shorten(first)}, and the second {shorten(second)}")


@topic.check(MUST, "v2025-result-two-waiters", "slow")
async def result_two_waiters(caller: ConformanceClient) -> None:
    """Two requests that wait for the same result both get it."""
    new_task = await caller.start_task("slow")
    waiting = [await caller.request_result(new_task.id) for _ in range(2)]
    first, second = [_comparable(await caller.wait_for_reply(pending, caller.result_timeout)) for pending in waiting]
    expect(first == second, f"one request got {shorten(first)}, and the other {shorten(second)}")


@topic.check(SHOULD_NOT, "v2025-result-abandoned", "slow", section="Retrieving Task Results")
async def result_abandoned(caller: ConformanceClient) -> None:
    """A client that cancels its tasks/result request (notifications/cancelled) does not cancel the task."""
    new_task = await caller.start_task("slow")
    pending = await caller.request_result(new_task.id)
    await caller.get_status(new_task.id)  # so that the server receives tasks/result before its cancellation
    await caller.notify("notifications/cancelled", {"requestId": pending.id})
    await caller.wait_for_status(new_task.id, {"completed"})
    expect_result(await caller.get_result(new_task.id))


@topic.check(
    SHOULD_NOT, "v2025-result-disconnected", "slow", "http", section="Transports: Sending Messages to the Server"
)
async def result_disconnected(caller: ConformanceClient) -> None:
    """A connection that breaks during tasks/result does not cancel the task."""
    new_task = await caller.start_task("slow")
    pending = await caller.request_result(new_task.id)
    await caller.get_status(new_task.id)
    await caller.abort_request(pending)
    await caller.wait_for_status(new_task.id, {"completed"})
    expect_result(await caller.get_result(new_task.id))


@topic.check(MUST, "v2025-result-other-disconnects", "slow", "http")
async def other_disconnects(caller: ConformanceClient) -> None:
    """A client that disconnects does not affect other clients: their tasks continue, and they can start new ones."""
    async with caller.open_second() as other:
        new_task = await caller.start_task("slow")
        await other.start_task("slow")
    second = await caller.start_task("slow")
    for task in (new_task, second):
        await caller.wait_for_status(task.id, {"completed"})
