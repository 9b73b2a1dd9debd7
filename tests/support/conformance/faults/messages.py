"""Faults in input requests, in status notifications and in progress."""

import asyncio

from tests.support.conformance.fake_server import FakeServer
from tests.support.conformance.fake_task import RELATED, STEP, STEPS, Message, Session, Task
from tests.support.conformance.faults.base import Fault, planter
from tests.support.conformance.faults.create import OtherView
from tests.support.conformance.faults.read import FirstServedOnly

FAULTS: list[Fault] = []
plant = planter(FAULTS)
RELATED_TO: Message = {"_meta": {RELATED: {"taskId": "the same id again"}}}


class AsksSilently(FakeServer):
    """Reports working while it waits for an answer."""

    asking_tool = ""

    def status_while_waiting(self, task: Task) -> str:
        return "working" if task.tool == self.asking_tool else super().status_while_waiting(task)


class AnswersTooSoon(FakeServer):
    """Answers tasks/result as soon as the input request is sent."""

    asking_tool = ""

    async def result(self, session: Session, params: Message, request_id: object) -> Message:
        task = self.find(session, params, "result")
        if task.tool != self.asking_tool:
            return await super().result(session, params, request_id)
        while task.question is None:
            await task.changed.wait()
        await self.put_question(session, task, request_id)
        return {"content": [], "_meta": {RELATED: {"taskId": task.id}}}


class AsksWithoutTask(FakeServer):
    """Does not name the task in an input request."""

    asking_tool = ""

    async def put_question(self, session: Session, task: Task, request_id: object) -> None:
        if task.tool == self.asking_tool and task.question is not None:
            task.question["params"].pop("_meta")
        await super().put_question(session, task, request_id)


class AsksEveryWaiter(FakeServer):
    """Sends the input request to each waiting request."""

    asking_tool = ""

    async def result(self, session: Session, params: Message, request_id: object) -> Message:
        task = self.find(session, params, "result")
        open_question = task.question is not None and task.question["id"] in self.waiting
        if task.tool == self.asking_tool and task.was_asked and task.question is not None and open_question:
            key = f"{task.question['id']}-again"
            self.waiting[key] = self.waiting[task.question["id"]]
            await session.send({**task.question, "id": key}, of=request_id)
        return await super().result(session, params, request_id)


@plant("v2025-elicitation-status")
class ElicitsSilently(AsksSilently):
    asking_tool = "asks"


@plant("v2025-sampling-status")
class SamplesSilently(AsksSilently):
    asking_tool = "samples"


@plant(
    "v2025-elicitation-sent",
    may_fail=["v2025-elicitation-own", "v2025-elicitation-completes", "v2025-elicitation-once"],
)
class ElicitationEndsTheWait(AnswersTooSoon):
    asking_tool = "asks"


@plant("v2025-sampling-sent", may_fail=["v2025-sampling-completes", "v2025-sampling-once"])
class SamplingEndsTheWait(AnswersTooSoon):
    asking_tool = "samples"


@plant("v2025-elicitation-related-task")
class ElicitsWithoutTask(AsksWithoutTask):
    asking_tool = "asks"


@plant("v2025-sampling-related-task")
class SamplesWithoutTask(AsksWithoutTask):
    asking_tool = "samples"


@plant("v2025-elicitation-once")
class ElicitsFromEveryWaiter(AsksEveryWaiter):
    asking_tool = "asks"


@plant("v2025-sampling-once")
class SamplesEveryWaiter(AsksEveryWaiter):
    asking_tool = "samples"


@plant("v2025-elicitation-completes")
class OneWaiterForElicitation(FirstServedOnly):
    only = "asks"


@plant("v2025-sampling-completes")
class OneWaiterForSampling(FirstServedOnly):
    only = "samples"


@plant("v2025-elicitation-undeclared")
class AsksAnyway(FakeServer):
    def may_ask(self, task: Task, capability: str) -> bool:
        del task, capability
        return True


@plant("v2025-requests-once")
class SendsTwice(FakeServer):
    """Sends the request again, also when the next task is created, whose request it must not be mistaken for."""

    async def call_as_task(self, session: Session, name: str, params: Message) -> Message:
        for task in self.tasks.values():
            if task.tool == "asks" and task.was_asked and task.question is not None and not task.has_ended:
                await session.send(task.question)
        return await super().call_as_task(session, name, params)

    async def put_question(self, session: Session, task: Task, request_id: object) -> None:
        await super().put_question(session, task, request_id)
        if task.tool == "asks" and task.question is not None:
            await session.send(task.question)


@plant("v2025-elicitation-own")
class AnswersGoAstray(FakeServer):
    """Gives every answer to the first task that waits."""

    def take_answer(self, message: Message) -> None:
        open_questions = (task.question["id"] for task in self.tasks.values() if task.question and not task.has_ended)
        super().take_answer({**message, "id": next(open_questions, message["id"])})


@plant("v2025-status-shape")
class StatusWithoutTtl(OtherView):
    where, missing = ("status",), "ttl"


@plant("v2025-status-no-related-task")
class StatusNamesTask(OtherView):
    where, wrong = ("status",), RELATED_TO


@plant("v2025-status-final")
class WorksAgain(FakeServer):
    async def notify(self, task: Task) -> None:
        await super().notify(task)
        if task.status == "completed":
            params = {**self.view(task, "status"), "status": "working"}
            await task.session.send({"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": params})


@plant("v2025-status-true")
class ReportsOtherEnd(FakeServer):
    def view(self, task: Task, where: str) -> Message:
        view = super().view(task, where)
        return {**view, "status": "failed"} if (where, task.status) == ("status", "completed") else view


class OtherReport(FakeServer):
    """Reports progress wrongly."""

    async def send_report(self, task: Task, token: object, progress: float, meta: Message) -> None:
        params = {"progressToken": token, "progress": progress, "_meta": meta}
        await task.session.send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})


@plant("v2025-progress-token")
class TokenAsText(OtherReport):
    async def report(self, task: Task, step: int) -> None:
        if task.token is not None:
            await self.send_report(task, str(task.token), step, {RELATED: {"taskId": task.id}})


@plant("v2025-progress-related-task")
class ProgressWithoutTask(OtherReport):
    async def report(self, task: Task, step: int) -> None:
        if task.token is not None:
            await self.send_report(task, task.token, step, {})


@plant("v2025-progress-increases")
class StandsStill(OtherReport):
    async def report(self, task: Task, step: int) -> None:
        if task.token is not None:
            await self.send_report(task, task.token, step // 2, {RELATED: {"taskId": task.id}})


@plant("v2025-progress-unrequested")
class ReportsUnrequested(OtherReport):
    async def report(self, task: Task, step: int) -> None:
        await super().report(task, step)
        if task.token is None:
            await self.send_report(task, "made up", step, {RELATED: {"taskId": task.id}})


@plant("v2025-progress-ends")
class ReportsAfterTheEnd(FakeServer):
    async def finish(self, task: Task, outcome: Message) -> None:
        await super().finish(task, outcome)
        if task.tool == "reports_progress":
            for step in range(STEPS + 1, STEPS + 21):
                await self.report(task, step)
                await asyncio.sleep(STEP)


@plant("v2025-progress-cancelled")
class ReportsAfterTheCancel(FakeServer):
    async def stop(self, task: Task) -> None:
        await super().stop(task)
        if task.tool == "reports_progress":
            self.spawn(self.keep_reporting(task))

    async def keep_reporting(self, task: Task) -> None:
        for step in range(STEPS + 1, STEPS + 21):
            await self.report(task, step)
            await asyncio.sleep(STEP)
