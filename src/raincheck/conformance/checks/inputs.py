"""Input in the middle of a task: questions to the user (elicitation) and to the caller's model (sampling)."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from raincheck.conformance.caller import SAMPLE, Begun, Caller
from raincheck.conformance.check import Check, check
from raincheck.conformance.messages import Message, Pending, shorten
from raincheck.conformance.outcome import Level, Unmet
from raincheck.conformance.shapes import RELATED_TASK, expect_related, expect_result, task_in

SECTION = "Input Required Status"


@dataclass(frozen=True)
class Kind:
    """A kind of question: the role that asks it, its method, and what is answered."""

    name: str
    role: str
    method: str
    answer: Callable[[Caller], Message]


ELICITATION = Kind(
    "elicitation",
    "asks",
    "elicitation/create",
    lambda caller: {"action": "accept", "content": dict(caller.role("asks").answer)},
)
SAMPLING = Kind("sampling", "samples", "sampling/createMessage", lambda _: SAMPLE)


@dataclass(frozen=True)
class Asked:
    """A task that asked: the task, who waits for its result, and the question."""

    begun: Begun
    waiting: Pending
    question: Message
    mark: int

    async def answer(self, caller: Caller, kind: Kind) -> None:
        result = {**kind.answer(caller), "_meta": {RELATED_TASK: {"taskId": self.begun.id}}}
        await caller.connection.answer(self.question, result)


@asynccontextmanager
async def _asking(caller: Caller, kind: Kind) -> AsyncGenerator[Asked]:
    """A task that asks, until its question is answered at the end."""
    with caller.connection.holding(kind.method):
        mark = caller.connection.mark()
        begun = await caller.begin(kind.role)
        waiting = await caller.wait(begun.id)
        asked = Asked(begun, waiting, await caller.connection.hear(kind.method, mark), mark)
        yield asked
        if not waiting.is_answered:
            await asked.answer(caller, kind)


def checks_of(kind: Kind) -> tuple[Check, ...]:
    """The checks that are the same for both kinds."""

    @check(
        f"g1-{kind.name}-status",
        Level.SHOULD,
        SECTION,
        f"A task that waits for {kind.name} is input_required, until it is answered.",
        "calls",
        kind.role,
    )
    async def status(caller: Caller) -> None:
        with caller.connection.holding(kind.method):
            begun = await caller.begin(kind.role)
            await caller.until(begun.id, {"input_required"})

    @check(
        f"g1-{kind.name}-asked",
        Level.MUST,
        SECTION,
        f"Who calls tasks/result of a task that waits for {kind.name} gets {kind.method}.",
        "calls",
        kind.role,
    )
    async def asked(caller: Caller) -> None:
        async with _asking(caller, kind) as asked:
            await caller.stay_quiet()
            if asked.waiting.is_answered:
                reply = asked.waiting.reply.result()
                raise Unmet(f"tasks/result was answered with {reply} while {kind.method} was not")

    @check(
        f"g1-{kind.name}-related-task",
        Level.MUST,
        SECTION,
        f"{kind.method} names the task that it is for in its _meta.",
        "calls",
        kind.role,
    )
    async def related(caller: Caller) -> None:
        async with _asking(caller, kind) as asked:
            expect_related(asked.question.get("params"), asked.begun.id, kind.method)

    @check(
        f"g1-{kind.name}-once",
        Level.SHOULD_NOT,
        "Transports: Multiple Connections",
        f"A question is not asked again because two wait for the result: one {kind.method}.",
        "calls",
        kind.role,
    )
    async def once(caller: Caller) -> None:
        async with _asking(caller, kind) as asked:
            await caller.wait(asked.begun.id)
            await caller.stay_quiet()
            # By their ids: the same request on two streams is another fault, for another check.
            questions = {str(one.message.get("id")) for one in caller.connection.asked_since(asked.mark, kind.method)}
            if len(questions) > 1:
                raise Unmet(f"two called tasks/result, and {kind.method} came {len(questions)} times")

    @check(
        f"g1-{kind.name}-completes",
        Level.SHOULD,
        SECTION,
        f"A task whose {kind.name} was answered goes on, and everybody who waits gets its result.",
        "calls",
        kind.role,
    )
    async def completes(caller: Caller) -> None:
        async with _asking(caller, kind) as asked:
            second = await caller.wait(asked.begun.id)
            await asked.answer(caller, kind)
            replies = [await caller.connection.reply_to(one, caller.patience) for one in (asked.waiting, second)]
        for reply in replies:
            if expect_result(reply).get("isError") is True:
                raise Unmet(f"the question was answered, and the task ended with {reply}")
        left = await caller.status(asked.begun.id)
        if left != "completed":
            raise Unmet(f"the question was answered, tasks/result too, and the task is {shorten(left)}")

    return status, asked, related, once, completes


@check(
    "g1-elicitation-undeclared",
    Level.MUST_NOT,
    "Elicitation: Capabilities",
    "A client that has not declared elicitation is not asked.",
    "calls",
    "asks",
)
async def undeclared(caller: Caller) -> None:
    async with caller.beside(capabilities={}) as silent:
        reply = await silent.call("asks", task={})
        task = task_in(reply.result or {})
        if "taskId" not in task:
            return  # refused, as it may be
        await silent.wait(task["taskId"])
        await silent.stay_quiet()
        if silent.connection.since(0, "elicitation/create"):
            raise Unmet("elicitation/create came to a client that did not declare elicitation")
        await silent.cancel(task["taskId"])


@check(
    "g1-requests-once",
    Level.MUST_NOT,
    "Transports: Multiple Connections",
    "A request of the server is sent on one stream, and not on several.",
    "calls",
    "asks",
)
async def requests_once(caller: Caller) -> None:
    async with _asking(caller, ELICITATION) as asked:
        await caller.stay_quiet()
        ids = [one.message.get("id") for one in caller.connection.since(asked.mark, ELICITATION.method)]
        if len(set(ids)) < len(ids):
            raise Unmet(f"the requests of the server had the ids {shorten(ids)}: one came more than once")


@check(
    "g1-elicitation-own",
    Level.MUST,
    SECTION,
    "Of two tasks that ask at once, each goes on with its own answer.",
    "calls",
    "asks",
)
async def own(caller: Caller) -> None:
    async with _asking(caller, ELICITATION) as first, _asking(caller, ELICITATION) as second:
        await second.answer(caller, ELICITATION)
        expect_result(await caller.connection.reply_to(second.waiting, caller.patience))
        if first.waiting.is_answered:
            raise Unmet("the second of two questions was answered, and the first task ended")


CHECKS = (*checks_of(ELICITATION), undeclared, requests_once, own, *checks_of(SAMPLING))
