"""Faults in cancelling, in whose a task is, and in the messages themselves."""

import asyncio
from typing import Any

from tests.support.conformance.fake_server import FakeServer
from tests.support.conformance.fake_task import RELATED, SLOW, Message, Refused, Session, Task
from tests.support.conformance.faults.base import Fault, planter
from tests.support.conformance.faults.create import OtherView

FAULTS: list[Fault] = []
plant = planter(FAULTS)
RELATED_TO: Message = {"_meta": {RELATED: {"taskId": "the same once more"}}}


@plant("g1-cancel-status")
class CancelTellsOld(FakeServer):
    def view(self, task: Task, where: str) -> Message:
        view = super().view(task, where)
        return {**view, "status": "working"} if (where, task.tool) == ("cancel", "slow") else view


@plant("g1-cancel-shape")
class CancelWithoutTimes(OtherView):
    where, missing = ("cancel",), "createdAt"


@plant("g1-cancel-stays", may=["g1-status-true"])
class LateCompletion(FakeServer):
    """The work goes on, and its end overwrites the cancel."""

    async def stop(self, task: Task) -> None:
        await super().stop(task)
        if task.tool == "slow":
            await self.spawn_late(task)

    async def spawn_late(self, task: Task) -> None:
        async def overwrite() -> None:
            await asyncio.sleep(SLOW * 0.6)
            task.status = "completed"

        self.spawn(overwrite())


class CancelsAgain(FakeServer):
    """Answers a cancel that it should refuse."""

    status = ""

    def refuse_cancel(self, task: Task) -> Message:
        return self.view(task, "cancel") if task.status == self.status else super().refuse_cancel(task)


@plant("g1-cancel-again-32602")
class CancelsCancelled(CancelsAgain):
    status = "cancelled"


@plant("g1-cancel-completed-32602")
class CancelsCompleted(CancelsAgain):
    status = "completed"


@plant("g1-cancel-completed-32602")
class RefusesAndCancels(FakeServer):
    def refuse_cancel(self, task: Task) -> Message:
        task.status = "cancelled" if task.tool == "quick" else task.status
        return super().refuse_cancel(task)


@plant("g1-cancel-failed-32602")
class CancelsFailed(CancelsAgain):
    status = "failed"


@plant("g1-cancel-result")
class EmptyResultOfCancelled(FakeServer):
    def final(self, task: Task) -> Message:
        return {"_meta": {RELATED: {"taskId": task.id}}} if task.status == "cancelled" else super().final(task)


@plant("g1-cancel-wakes")
class NobodyIsWoken(FakeServer):
    async def result(self, session: Session, params: Message, request_id: object) -> Message:
        waits = not self.find(session, params, "result").has_ended
        task = self.find(session, params, "result")
        answer = super().result(session, params, request_id)
        try:
            return await answer
        except Refused:
            if waits and task.status == "cancelled":
                await asyncio.Event().wait()
            raise


@plant("g1-cancel-input-required")
class NoCancelWhileAsking(FakeServer):
    async def cancel(self, session: Session, params: Message) -> Message:
        if self.find(session, params, "cancel").status == "input_required":
            raise Refused(-32602, "the task waits for input")
        return await super().cancel(session, params)


@plant("g1-cancel-no-related-task")
class CancelNamesTask(OtherView):
    where, wrong = ("cancel",), RELATED_TO


class OpenTo(FakeServer):
    """Lets everybody at a task, in one method."""

    method = ""

    def is_owner(self, session: Session, task: Task, method: str) -> bool:
        return method == self.method or super().is_owner(session, task, method)


@plant("g1-owner-get-refused", way="owners")
class AnybodyGets(OpenTo):
    method = "get"


@plant("g1-owner-result-refused", way="owners")
class AnybodyTakesResults(OpenTo):
    method = "result"


@plant("g1-owner-cancel-refused", way="owners", may=["g1-owner-cancel-unknown"])
class AnybodyCancels(OpenTo):
    method = "cancel"


class TellsThatItExists(FakeServer):
    """Has words of its own for somebody else's task."""

    method = ""

    def refuse_other(self, method: str) -> Task:
        if method == self.method:
            raise Refused(-32602, "this task is not yours")
        return super().refuse_other(method)

    def refuse_unknown(self, method: str) -> Task:
        return super().refuse_other(method)


@plant("g1-owner-get-unknown", way="owners")
class GetTells(TellsThatItExists):
    method = "get"


@plant("g1-owner-result-unknown", way="owners")
class ResultTells(TellsThatItExists):
    method = "result"


@plant("g1-owner-cancel-unknown", way="owners")
class CancelTells(TellsThatItExists):
    method = "cancel"


@plant("g1-owner-list", way="owners")
class ListsEverything(FakeServer):
    def is_listed(self, session: Session, task: Task) -> bool:
        del session, task
        return True


@plant("g1-owner-silence", way="owners")
class TellsEverybody(FakeServer):
    async def notify(self, task: Task) -> None:
        await super().notify(task)
        news = {"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": self.view(task, "status")}
        for session in self.sessions:
            if session is not task.session:
                await session.send(news)


@plant("g1-owner-returns", way="owners")
class BoundToTheSession(FakeServer):
    def is_owner(self, session: Session, task: Task, method: str) -> bool:
        del method
        return session is task.session


@plant("g1-messages-only")
class LogsToStdout(FakeServer):
    def initialize(self, session: Session, params: Message) -> Message:
        out: Any = session
        out.write("INFO: a client is here")
        return super().initialize(session, params)


@plant("g1-messages-json-rpc")
class OtherJsonRpc(FakeServer):
    async def notify(self, task: Task) -> None:
        await super().notify(task)
        old: Message = {"jsonrpc": "1.0", "method": "notifications/message", "params": {"level": "info", "data": "!"}}
        await task.session.send(old)
