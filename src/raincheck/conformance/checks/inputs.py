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
        begun = await caller.start_task(kind.role)
        waiting = await caller.request_result(begun.id)
        asked = InputRequestUnderTest(begun, waiting, await caller.connection.wait_for_request(kind.method, mark), mark)
        yield asked
        if not waiting.is_answered:
            await asked.answer(caller, kind)


def checks_of(kind: InputRequestKind) -> tuple[Check, ...]:
    """Return the checks that are the same for both kinds."""

    @check(
        f"g1-{kind.name}-status",
        RequirementLevel.SHOULD,
        SECTION,
        f"A task that waits for {kind.name} is input_required, until it is answered.",
        "calls",
        kind.role,
    )
    async def status(caller: ConformanceClient) -> None:
        with caller.connection.hold_requests(kind.method):
            begun = await caller.start_task(kind.role)
            await caller.wait_for_status(begun.id, {"input_required"})

    @check(
        f"g1-{kind.name}-asked",
        RequirementLevel.MUST,
        SECTION,
        f"Who calls tasks/result of a task that waits for {kind.name} gets {kind.method}.",
        "calls",
        kind.role,
    )
    async def asked(caller: ConformanceClient) -> None:
        async with _open_input_request(caller, kind) as asked:
            await caller.wait_quiet_period()
            if asked.pending_result.is_answered:
                reply = asked.pending_result.reply.result()
                raise RequirementNotMet(f"tasks/result was answered with {reply} while {kind.method} was not")

    @check(
        f"g1-{kind.name}-related-task",
        RequirementLevel.MUST,
        SECTION,
        f"{kind.method} names the task that it is for in its _meta.",
        "calls",
        kind.role,
    )
    async def related(caller: ConformanceClient) -> None:
        async with _open_input_request(caller, kind) as asked:
            expect_related(asked.request.get("params"), asked.task.id, kind.method)

    @check(
        f"g1-{kind.name}-once",
        RequirementLevel.SHOULD_NOT,
        "Transports: Multiple Connections",
        f"A question is not asked again because two wait for the result: one {kind.method}.",
        "calls",
        kind.role,
    )
    async def once(caller: ConformanceClient) -> None:
        async with _open_input_request(caller, kind) as asked:
            await caller.request_result(asked.task.id)
            await caller.wait_quiet_period()
            # Counted by id: the same request on two streams is another fault, for another check.
            questions = {
                str(one.message.get("id")) for one in caller.connection.new_requests_since(asked.mark, kind.method)
            }
            if len(questions) > 1:
                raise RequirementNotMet(f"two called tasks/result, and {kind.method} came {len(questions)} times")

    @check(
        f"g1-{kind.name}-completes",
        RequirementLevel.SHOULD,
        SECTION,
        f"A task whose {kind.name} was answered goes on, and everybody who waits gets its result.",
        "calls",
        kind.role,
    )
    async def completes(caller: ConformanceClient) -> None:
        async with _open_input_request(caller, kind) as asked:
            second = await caller.request_result(asked.task.id)
            await asked.answer(caller, kind)
            replies = [
                await caller.connection.wait_for_reply(one, caller.result_timeout)
                for one in (asked.pending_result, second)
            ]
        for reply in replies:
            if expect_result(reply).get("isError") is True:
                raise RequirementNotMet(f"the question was answered, and the task ended with {reply}")
        left = await caller.get_status(asked.task.id)
        if left != "completed":
            raise RequirementNotMet(f"the question was answered, tasks/result too, and the task is {shorten(left)}")

    return status, asked, related, once, completes


@check(
    "g1-elicitation-undeclared",
    RequirementLevel.MUST_NOT,
    "Elicitation: Capabilities",
    "A client that has not declared elicitation is not asked.",
    "calls",
    "asks",
)
async def undeclared(caller: ConformanceClient) -> None:
    async with caller.open_second(capabilities={}) as silent:
        reply = await silent.call("asks", task={})
        task = task_in(reply.result or {})
        if "taskId" not in task:
            return  # rejected, which is allowed
        await silent.request_result(task["taskId"])
        await silent.wait_quiet_period()
        if silent.connection.received_since(0, "elicitation/create"):
            raise RequirementNotMet("elicitation/create came to a client that did not declare elicitation")
        await silent.cancel_task(task["taskId"])


@check(
    "g1-requests-once",
    RequirementLevel.MUST_NOT,
    "Transports: Multiple Connections",
    "A request of the server is sent on one stream, and not on several.",
    "calls",
    "asks",
)
async def requests_once(caller: ConformanceClient) -> None:
    async with _open_input_request(caller, ELICITATION) as asked:
        await caller.wait_quiet_period()
        ids = [one.message.get("id") for one in caller.connection.received_since(asked.mark, ELICITATION.method)]
        if len(set(ids)) < len(ids):
            raise RequirementNotMet(f"the requests of the server had the ids {shorten(ids)}: one came more than once")


@check(
    "g1-elicitation-own",
    RequirementLevel.MUST,
    SECTION,
    "Of two tasks that ask at once, each goes on with its own answer.",
    "calls",
    "asks",
)
async def own(caller: ConformanceClient) -> None:
    async with _open_input_request(caller, ELICITATION) as first, _open_input_request(caller, ELICITATION) as second:
        await second.answer(caller, ELICITATION)
        expect_result(await caller.connection.wait_for_reply(second.pending_result, caller.result_timeout))
        if first.pending_result.is_answered:
            raise RequirementNotMet("the second of two questions was answered, and the first task ended")


CHECKS = (*checks_of(ELICITATION), undeclared, requests_once, own, *checks_of(SAMPLING))
