"""Faults in cancelling, in task isolation, and in the messages themselves."""

import asyncio
from typing import Any

from tests.support.conformance.fake_server import FakeServer
from tests.support.conformance.fake_task import RELATED, SLOW, Message, Rejected, Session, Task
from tests.support.conformance.faults.base import Fault, planter
from tests.support.conformance.faults.create import OtherView

FAULTS: list[Fault] = []
plant = planter(FAULTS)
RELATED_TO: Message = {"_meta": {RELATED: {"taskId": "the same id again"}}}


@plant("v2025-cancel-status")
class CancelReturnsOldStatus(FakeServer):
    def view(self, task: Task, where: str) -> Message:
        view = super().view(task, where)
        return {**view, "status": "working"} if (where, task.tool) == ("cancel", "slow") else view


@plant("v2025-cancel-shape")
class CancelWithoutTimes(OtherView):
    where, missing = ("cancel",), "createdAt"


@plant("v2025-cancel-stays", may_fail=["v2025-status-true"])
class LateCompletion(FakeServer):
    """The work continues, and its end overwrites the cancel."""

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
    """Accepts a cancel that it should reject."""

    status = ""

    def refuse_cancel(self, task: Task) -> Message:
        return self.view(task, "cancel") if task.status == self.status else super().refuse_cancel(task)


@plant("v2025-cancel-again-32602")
class CancelsCancelled(CancelsAgain):
    status = "cancelled"


@plant("v2025-cancel-completed-32602")
class CancelsCompleted(CancelsAgain):
    status = "completed"


@plant("v2025-cancel-completed-32602")
class RejectsAndCancels(FakeServer):
    def refuse_cancel(self, task: Task) -> Message:
        task.status = "cancelled" if task.tool == "quick" else task.status
        return super().refuse_cancel(task)


@plant("v2025-cancel-failed-32602")
class CancelsFailed(CancelsAgain):
    status = "failed"


@plant("v2025-cancel-result")
class EmptyResultOfCancelled(FakeServer):
    def final(self, task: Task) -> Message:
        return {"_meta": {RELATED: {"taskId": task.id}}} if task.status == "cancelled" else super().final(task)


@plant("v2025-cancel-wakes")
class CancelWakesNoWaiter(FakeServer):
    async def result(self, session: Session, params: Message, request_id: object) -> Message:
        waits = not self.find(session, params, "result").has_ended
        task = self.find(session, params, "result")
        answer = super().result(session, params, request_id)
        try:
            return await answer
        except Rejected:
            if waits and task.status == "cancelled":
                await asyncio.Event().wait()
            raise


@plant("v2025-cancel-input-required")
class NoCancelWhileAsking(FakeServer):
    async def cancel(self, session: Session, params: Message) -> Message:
        if self.find(session, params, "cancel").status == "input_required":
            raise Rejected(-32602, "the task waits for input")
        return await super().cancel(session, params)


@plant("v2025-cancel-no-related-task")
class CancelNamesTask(OtherView):
    where, wrong = ("cancel",), RELATED_TO


class OpenTo(FakeServer):
    """Lets every caller access a task, in one method."""

    method = ""

    def is_owner(self, session: Session, task: Task, method: str) -> bool:
        return method == self.method or super().is_owner(session, task, method)


@plant("v2025-owner-get-refused", mode="owners")
class EveryCallerGets(OpenTo):
    method = "get"


@plant("v2025-owner-result-refused", mode="owners")
class EveryCallerGetsResults(OpenTo):
    method = "result"


@plant("v2025-owner-cancel-refused", mode="owners", may_fail=["v2025-owner-cancel-unknown"])
class EveryCallerCancels(OpenTo):
    method = "cancel"


class RevealsForeignTasks(FakeServer):
    """Returns a different error for the task of another caller."""

    method = ""

    def refuse_other(self, method: str) -> Task:
        if method == self.method:
            raise Rejected(-32602, "this task is not yours")
        return super().refuse_other(method)

    def refuse_unknown(self, method: str) -> Task:
        return super().refuse_other(method)


@plant("v2025-owner-get-unknown", mode="owners")
class GetReveals(RevealsForeignTasks):
    method = "get"


@plant("v2025-owner-result-unknown", mode="owners")
class ResultReveals(RevealsForeignTasks):
    method = "result"


@plant("v2025-owner-cancel-unknown", mode="owners")
class CancelReveals(RevealsForeignTasks):
    method = "cancel"


@plant("v2025-owner-list", mode="owners")
class ListsEverything(FakeServer):
    def is_listed(self, session: Session, task: Task) -> bool:
        del session, task
        return True


@plant("v2025-owner-silence", mode="owners")
class NotifiesEverySession(FakeServer):
    async def notify(self, task: Task) -> None:
        await super().notify(task)
        notification = {"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": self.view(task, "status")}
        for session in self.sessions:
            if session is not task.session:
                await session.send(notification)


@plant("v2025-owner-returns", mode="owners")
class BoundToTheSession(FakeServer):
    def is_owner(self, session: Session, task: Task, method: str) -> bool:
        del method
        return session is task.session


@plant("v2025-messages-only")
class LogsToStdout(FakeServer):
    def initialize(self, session: Session, params: Message) -> Message:
        out: Any = session
        out.write("INFO: a client is here")
        return super().initialize(session, params)


@plant("v2025-messages-json-rpc")
class OtherJsonRpc(FakeServer):
    async def notify(self, task: Task) -> None:
        await super().notify(task)
        old: Message = {"jsonrpc": "1.0", "method": "notifications/message", "params": {"level": "info", "data": "!"}}
        await task.session.send(old)
