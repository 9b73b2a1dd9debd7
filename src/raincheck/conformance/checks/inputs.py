"""Checks of input requests: questions to the user (elicitation) and to the caller's model (sampling)."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from raincheck.conformance.caller import SAMPLE, ConformanceClient, TaskUnderTest
from raincheck.conformance.check import MUST, MUST_NOT, SHOULD, SHOULD_NOT, Topic
from raincheck.conformance.connection import Message, PendingRequest, shorten
from raincheck.conformance.requirements import (
    RELATED_TASK,
    RequirementNotMet,
    expect,
    expect_related,
    expect_result,
    task_in,
)

topic = Topic("Input", "Input Required Status", "calls")


@dataclass(frozen=True)
class InputRequestKind:
    """A kind of input request: the role of the tool that sends it, its method, and its answer."""

    name: str
    role: str
    method: str
    answer: Callable[[ConformanceClient], Message]


ELICITATION = InputRequestKind(
    "elicitation",
    "asks",
    "elicitation/create",
    lambda caller: {"action": "accept", "content": dict(caller.role("asks").answer)},
)
SAMPLING = InputRequestKind("sampling", "samples", "sampling/createMessage", lambda _: SAMPLE)


@dataclass(frozen=True)
class InputRequestUnderTest:
    """A task with an open input request: the task, its pending `tasks/result`, and the request."""

    task: TaskUnderTest
    pending_result: PendingRequest
    request: Message
    mark: int

    async def answer(self, caller: ConformanceClient, kind: InputRequestKind) -> None:
        result = {**kind.answer(caller), "_meta": {RELATED_TASK: {"taskId": self.task.id}}}
        await caller.answer(self.request, result)


@asynccontextmanager
async def _open_input_request(
    caller: ConformanceClient, kind: InputRequestKind
) -> AsyncGenerator[InputRequestUnderTest]:
    """Start a task that sends an input request, and answer the request on exit."""
    with caller.hold_requests(kind.method):
        mark = caller.mark()
        new_task = await caller.start_task(kind.role)
        pending = await caller.request_result(new_task.id)
        open_request = InputRequestUnderTest(new_task, pending, await caller.wait_for_request(kind.method, mark), mark)
        yield open_request
        if not pending.is_answered:
            await open_request.answer(caller, kind)


def _add_checks(kind: InputRequestKind) -> None:
    """Add the checks that are the same for both kinds."""

    @topic.check(
        SHOULD,
        f"v2025-{kind.name}-status",
        kind.role,
        requirement=f"A task that waits for {kind.name} is input_required until it gets the answer.",
    )
    async def status(caller: ConformanceClient) -> None:
        with caller.hold_requests(kind.method):
            new_task = await caller.start_task(kind.role)
            await caller.wait_for_status(new_task.id, {"input_required"})

    @topic.check(
        MUST,
        f"v2025-{kind.name}-sent",
        kind.role,
        requirement=f"A client that calls tasks/result of a task that waits for {kind.name} receives {kind.method}.",
    )
    async def sent(caller: ConformanceClient) -> None:
        async with _open_input_request(caller, kind) as open_request:
            await caller.wait_quiet_period()
            if open_request.pending_result.is_answered:
                reply = open_request.pending_result.reply.result()
                raise RequirementNotMet(f"tasks/result returned {reply} while {kind.method} was unanswered")

    @topic.check(
        MUST, f"v2025-{kind.name}-related-task", kind.role, requirement=f"{kind.method} names its task in _meta."
    )
    async def related(caller: ConformanceClient) -> None:
        async with _open_input_request(caller, kind) as open_request:
            expect_related(open_request.request.get("params"), open_request.task.id, kind.method)

    @topic.check(
        SHOULD_NOT,
        f"v2025-{kind.name}-once",
        kind.role,
        section="Transports: Multiple Connections",
        requirement=f"{kind.method} is sent once, even if two requests wait for the result.",
    )
    async def once(caller: ConformanceClient) -> None:
        async with _open_input_request(caller, kind) as open_request:
            await caller.request_result(open_request.task.id)
            await caller.wait_quiet_period()
            # Counted by id: another check covers a request that is sent on two streams.
            request_ids = {
                str(received.message.get("id"))
                for received in caller.new_requests_since(open_request.mark, kind.method)
            }
            if len(request_ids) > 1:
                raise RequirementNotMet(
                    f"two requests waited for the result, and {kind.method} was sent {len(request_ids)} times"
                )

    @topic.check(
        SHOULD,
        f"v2025-{kind.name}-completes",
        kind.role,
        requirement=f"A task continues once its {kind.name} is answered, and every waiting request gets its result.",
    )
    async def completes(caller: ConformanceClient) -> None:
        async with _open_input_request(caller, kind) as open_request:
            second = await caller.request_result(open_request.task.id)
            await open_request.answer(caller, kind)
            replies = [
                await caller.wait_for_reply(pending, caller.result_timeout)
                for pending in (open_request.pending_result, second)
            ]
        for reply in replies:
            if expect_result(reply).get("isError") is True:
                raise RequirementNotMet(f"{kind.method} was answered, but the task ended with {reply}")
        status = await caller.get_status(open_request.task.id)
        expect(
            status == "completed", f"{kind.method} and tasks/result were answered, but the task is {shorten(status)}"
        )


_add_checks(ELICITATION)


@topic.check(MUST_NOT, "v2025-elicitation-undeclared", "asks", section="Elicitation: Capabilities")
async def undeclared(caller: ConformanceClient) -> None:
    """A client that did not declare elicitation gets no elicitation requests."""
    async with caller.open_second(capabilities={}) as undeclaring:
        reply = await undeclaring.call("asks", task={})
        task = task_in(reply.result or {})
        if "taskId" not in task:
            return  # rejected, which is allowed
        await undeclaring.request_result(task["taskId"])
        await undeclaring.wait_quiet_period()
        if undeclaring.received_since(0, "elicitation/create"):
            raise RequirementNotMet("the server sent elicitation/create to a client that did not declare elicitation")
        await undeclaring.cancel_task(task["taskId"])


@topic.check(MUST_NOT, "v2025-requests-once", "asks", section="Transports: Multiple Connections")
async def requests_once(caller: ConformanceClient) -> None:
    """The server sends each of its requests on one stream only."""
    async with _open_input_request(caller, ELICITATION) as open_request:
        await caller.wait_quiet_period()
        ids = [received.message.get("id") for received in caller.received_since(open_request.mark, ELICITATION.method)]
        if len(set(ids)) < len(ids):
            raise RequirementNotMet(f"the server sent requests with the ids {shorten(ids)}: one of them more than once")


@topic.check(MUST, "v2025-elicitation-own", "asks")
async def own(caller: ConformanceClient) -> None:
    """If two tasks wait for input at once, each continues with its own answer."""
    async with _open_input_request(caller, ELICITATION) as first, _open_input_request(caller, ELICITATION) as second:
        await second.answer(caller, ELICITATION)
        expect_result(await caller.wait_for_reply(second.pending_result, caller.result_timeout))
        if first.pending_result.is_answered:
            raise RequirementNotMet("the input request of the second task was answered, and the first task ended")


_add_checks(SAMPLING)
