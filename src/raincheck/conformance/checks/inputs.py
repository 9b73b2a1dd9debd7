"""Checks of input requests: questions to the user (elicitation) and to the caller's model (sampling)."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from raincheck.conformance.caller import SAMPLE, ConformanceClient, TaskUnderTest
from raincheck.conformance.check import Check, check
from raincheck.conformance.messages import Message, PendingRequest, shorten
from raincheck.conformance.outcome import RequirementLevel, RequirementNotMet
from raincheck.conformance.shapes import RELATED_TASK, expect_related, expect_result, task_in

SECTION = "Input Required Status"


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
        await caller.connection.answer(self.request, result)


@asynccontextmanager
async def _open_input_request(
    caller: ConformanceClient, kind: InputRequestKind
) -> AsyncGenerator[InputRequestUnderTest]:
    """Start a task that sends an input request, and answer the request on exit."""
    with caller.connection.hold_requests(kind.method):
        mark = caller.connection.mark()
        new_task = await caller.start_task(kind.role)
        pending = await caller.request_result(new_task.id)
        open_request = InputRequestUnderTest(
            new_task, pending, await caller.connection.wait_for_request(kind.method, mark), mark
        )
        yield open_request
        if not pending.is_answered:
            await open_request.answer(caller, kind)


def checks_of(kind: InputRequestKind) -> tuple[Check, ...]:
    """Return the checks that are the same for both kinds."""

    @check(
        f"v2025-{kind.name}-status",
        RequirementLevel.SHOULD,
        SECTION,
        f"A task that waits for {kind.name} is input_required until it gets the answer.",
        "calls",
        kind.role,
    )
    async def status(caller: ConformanceClient) -> None:
        with caller.connection.hold_requests(kind.method):
            new_task = await caller.start_task(kind.role)
            await caller.wait_for_status(new_task.id, {"input_required"})

    @check(
        f"v2025-{kind.name}-sent",
        RequirementLevel.MUST,
        SECTION,
        f"A client that calls tasks/result of a task that waits for {kind.name} receives {kind.method}.",
        "calls",
        kind.role,
    )
    async def sent(caller: ConformanceClient) -> None:
        async with _open_input_request(caller, kind) as open_request:
            await caller.wait_quiet_period()
            if open_request.pending_result.is_answered:
                reply = open_request.pending_result.reply.result()
                raise RequirementNotMet(f"tasks/result returned {reply} while {kind.method} was unanswered")

    @check(
        f"v2025-{kind.name}-related-task",
        RequirementLevel.MUST,
        SECTION,
        f"{kind.method} names its task in _meta.",
        "calls",
        kind.role,
    )
    async def related(caller: ConformanceClient) -> None:
        async with _open_input_request(caller, kind) as open_request:
            expect_related(open_request.request.get("params"), open_request.task.id, kind.method)

    @check(
        f"v2025-{kind.name}-once",
        RequirementLevel.SHOULD_NOT,
        "Transports: Multiple Connections",
        f"{kind.method} is sent once, even if two requests wait for the result.",
        "calls",
        kind.role,
    )
    async def once(caller: ConformanceClient) -> None:
        async with _open_input_request(caller, kind) as open_request:
            await caller.request_result(open_request.task.id)
            await caller.wait_quiet_period()
            # Counted by id: another check covers a request that is sent on two streams.
            request_ids = {
                str(received.message.get("id"))
                for received in caller.connection.new_requests_since(open_request.mark, kind.method)
            }
            if len(request_ids) > 1:
                raise RequirementNotMet(
                    f"two requests waited for the result, and {kind.method} was sent {len(request_ids)} times"
                )

    @check(
        f"v2025-{kind.name}-completes",
        RequirementLevel.SHOULD,
        SECTION,
        f"A task continues once its {kind.name} is answered, and every waiting request gets its result.",
        "calls",
        kind.role,
    )
    async def completes(caller: ConformanceClient) -> None:
        async with _open_input_request(caller, kind) as open_request:
            second = await caller.request_result(open_request.task.id)
            await open_request.answer(caller, kind)
            replies = [
                await caller.connection.wait_for_reply(pending, caller.result_timeout)
                for pending in (open_request.pending_result, second)
            ]
        for reply in replies:
            if expect_result(reply).get("isError") is True:
                raise RequirementNotMet(f"{kind.method} was answered, but the task ended with {reply}")
        status = await caller.get_status(open_request.task.id)
        if status != "completed":
            raise RequirementNotMet(f"{kind.method} and tasks/result were answered, but the task is {shorten(status)}")

    return status, sent, related, once, completes


@check(
    "v2025-elicitation-undeclared",
    RequirementLevel.MUST_NOT,
    "Elicitation: Capabilities",
    "A client that did not declare elicitation gets no elicitation requests.",
    "calls",
    "asks",
)
async def undeclared(caller: ConformanceClient) -> None:
    async with caller.open_second(capabilities={}) as undeclaring:
        reply = await undeclaring.call("asks", task={})
        task = task_in(reply.result or {})
        if "taskId" not in task:
            return  # rejected, which is allowed
        await undeclaring.request_result(task["taskId"])
        await undeclaring.wait_quiet_period()
        if undeclaring.connection.received_since(0, "elicitation/create"):
            raise RequirementNotMet("the server sent elicitation/create to a client that did not declare elicitation")
        await undeclaring.cancel_task(task["taskId"])


@check(
    "v2025-requests-once",
    RequirementLevel.MUST_NOT,
    "Transports: Multiple Connections",
    "The server sends each of its requests on one stream only.",
    "calls",
    "asks",
)
async def requests_once(caller: ConformanceClient) -> None:
    async with _open_input_request(caller, ELICITATION) as open_request:
        await caller.wait_quiet_period()
        ids = [
            received.message.get("id")
            for received in caller.connection.received_since(open_request.mark, ELICITATION.method)
        ]
        if len(set(ids)) < len(ids):
            raise RequirementNotMet(f"the server sent requests with the ids {shorten(ids)}: one of them more than once")


@check(
    "v2025-elicitation-own",
    RequirementLevel.MUST,
    SECTION,
    "If two tasks wait for input at once, each continues with its own answer.",
    "calls",
    "asks",
)
async def own(caller: ConformanceClient) -> None:
    async with _open_input_request(caller, ELICITATION) as first, _open_input_request(caller, ELICITATION) as second:
        await second.answer(caller, ELICITATION)
        expect_result(await caller.connection.wait_for_reply(second.pending_result, caller.result_timeout))
        if first.pending_result.is_answered:
            raise RequirementNotMet("the input request of the second task was answered, and the first task ended")


CHECKS = (*checks_of(ELICITATION), undeclared, requests_once, own, *checks_of(SAMPLING))
