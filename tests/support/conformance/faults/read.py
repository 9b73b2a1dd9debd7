"""Faults in reading tasks, in their results, and in lists."""

import asyncio
from typing import Any

from tests.support.conformance.fake_server import FakeServer
from tests.support.conformance.fake_task import (
    INVALID,
    NOT_FOUND,
    PAGE,
    RELATED,
    SLOW,
    Message,
    Rejected,
    Session,
    Task,
    text,
)
from tests.support.conformance.faults.base import Fault, planter
from tests.support.conformance.faults.create import OtherView

FAULTS: list[Fault] = []
plant = planter(FAULTS)
RELATED_TO: Message = {"_meta": {RELATED: {"taskId": "the same id again"}}}


@plant("v2025-get-at-once", may_fail=["*"])
class UnknownAtFirst(FakeServer):
    async def get(self, session: Session, params: Message) -> Message:
        task = self.find(session, params, "get")
        task.reads += 1
        if task.reads == 1:
            raise Rejected(INVALID, "task not found")
        return await super().get(session, params)


@plant("v2025-get-shape")
class NumberForMessage(OtherView):
    where, wrong = ("get",), {"statusMessage": 7}


@plant("v2025-get-no-related-task")
class GetNamesTask(OtherView):
    where, wrong = ("get",), RELATED_TO


@plant("v2025-get-no-stream", mode="http")
class GetStreams(FakeServer):
    streamed = ("tools/call", "tasks/result", "tasks/get")

    async def dispatch(self, session: Session, method: str, params: Message, request_id: object) -> Message:
        answer = await super().dispatch(session, method, params, request_id)
        if method == "tasks/get":
            notification = {"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": answer}
            await session.send(notification, of=request_id)
        return answer


@plant("v2025-terminal-final", may_fail=["v2025-status-true"])
class ChangesAfterTheEnd(FakeServer):
    async def call(self, session: Session, params: Message, request_id: object) -> Message:
        for task in self.tasks.values():
            task.status = "working" if task.reads and task.tool == "quick" else task.status
        return await super().call(session, params, request_id)

    def final(self, task: Task) -> Message:
        task.reads += 1
        return super().final(task)


class OtherCode(FakeServer):
    """Returns another error code for unknown or invalid ids."""

    unknown = ""
    unreadable = ""

    def refuse_unknown(self, method: str) -> Task:
        if method == self.unknown:
            raise Rejected(-32001, "task not found")
        return super().refuse_unknown(method)

    def refuse_id(self, method: str) -> Task:
        if method == self.unreadable:
            raise Rejected(-32603, "unexpected None")
        return super().refuse_id(method)


@plant("v2025-get-unknown-32602")
class OtherCodeInGet(OtherCode):
    unknown = "get"


@plant("v2025-result-unknown-32602")
class OtherCodeInResult(OtherCode):
    unknown = "result"


@plant("v2025-cancel-unknown-32602")
class OtherCodeInCancel(OtherCode):
    unknown = "cancel"


@plant("v2025-get-invalid-32602")
class CrashInGet(OtherCode):
    unreadable = "get"


@plant("v2025-result-invalid-32602")
class CrashInResult(OtherCode):
    unreadable = "result"


@plant("v2025-cancel-invalid-32602")
class CrashInCancel(OtherCode):
    unreadable = "cancel"


class MetaFirst(FakeServer):
    """Reads the task id from `_meta` in one method."""

    method = ""

    def find(self, session: Session, params: Message, method: str) -> Task:
        related = params.get("_meta", {}).get(RELATED)
        return super().find(session, related if related and method == self.method else params, method)


@plant("v2025-get-related-task-ignored")
class MetaFirstInGet(MetaFirst):
    method = "get"


@plant("v2025-result-related-task-ignored")
class MetaFirstInResult(MetaFirst):
    method = "result"


@plant("v2025-cancel-related-task-ignored")
class MetaFirstInCancel(MetaFirst):
    method = "cancel"


@plant("v2025-result-blocks")
class StatusLate(FakeServer):
    """Returns the result before the status is terminal."""

    async def finish(self, task: Task, outcome: Message) -> None:
        await super().finish(task, outcome)
        if task.tool == "slow":
            task.reads = 1
            await asyncio.sleep(SLOW)
            task.reads = 0

    def view(self, task: Task, where: str) -> Message:
        view = super().view(task, where)
        return {**view, "status": "working"} if task.tool == "slow" and task.reads and where == "get" else view


@plant("v2025-result-concurrent-requests", may_fail=["v2025-cancel-wakes", "v2025-result-abandoned"])
class OneAtATime(FakeServer):
    def __init__(self) -> None:
        super().__init__()
        self.lock = asyncio.Lock()

    async def dispatch(self, session: Session, method: str, params: Message, request_id: object) -> Message:
        task = self.tasks.get(str(params.get("taskId")))
        if method == "tasks/result" and task is not None and task.tool == "slow":
            async with self.lock:
                return await super().dispatch(session, method, params, request_id)
        async with self.lock:
            pass
        return await super().dispatch(session, method, params, request_id)


@plant("v2025-result-same-as-plain")
class OtherResult(FakeServer):
    async def work(self, task: Task) -> Message:
        return text("done as a task") if task.tool == "quick" else await super().work(task)


@plant("v2025-result-related-task")
class ResultNamesNoTask(FakeServer):
    def final(self, task: Task) -> Message:
        return {**super().final(task), "_meta": {}}


@plant("v2025-result-again")
class ResultOnce(FakeServer):
    def final(self, task: Task) -> Message:
        task.reads += 1
        return {"content": []} if task.tool == "quick" and task.reads > 1 else super().final(task)


class FirstServedOnly(FakeServer):
    """Answers only one of several requests that wait for a result."""

    only = ""

    async def result(self, session: Session, params: Message, request_id: object) -> Message:
        task = self.find(session, params, "result")
        waits = not task.has_ended and task.tool == self.only
        task.reads += 1
        if waits and task.reads > 1:
            await asyncio.Event().wait()
        return await super().result(session, params, request_id)


@plant("v2025-result-two-waiters")
class OneWaiter(FirstServedOnly):
    only = "slow"


@plant("v2025-result-abandoned")
class GivingUpCancels(FakeServer):
    def cancel_request(self, session: Session, request_id: object) -> None:
        super().cancel_request(session, request_id)
        for task in self.tasks.values():
            if task.tool == "slow" and not task.has_ended:
                self.spawn(self.stop(task))


@plant("v2025-result-disconnected", mode="http")
class DroppingCancels(FakeServer):
    def dropped(self, session: Session, request_id: object) -> None:
        del session
        response = next((each for (_, key), each in self.requests.items() if key == request_id), None)
        if response is None or response.done():
            return
        for task in self.tasks.values():
            if task.tool == "slow" and not task.has_ended:
                self.spawn(self.stop(task))


@plant("v2025-result-other-disconnects", mode="http")
class LeavingFailsAll(FakeServer):
    def leave(self, session: Session) -> None:
        super().leave(session)
        for task in self.tasks.values():
            if task.tool == "slow":
                self.spawn(self.finish(task, {"error": {"code": -32603, "message": "shut down"}}))


@plant("v2025-tool-error-failed")
class ToolErrorCompletes(FakeServer):
    async def change(self, task: Task, status: str, message: str | None = None) -> None:
        await super().change(task, "completed" if (task.tool, status) == ("tool_error", "failed") else status, message)


@plant("v2025-tool-error-result")
class ToolErrorIsProtocolError(FakeServer):
    def final(self, task: Task) -> Message:
        if task.tool == "tool_error":
            raise Rejected(-32603, "the tool failed")
        return super().final(task)


@plant("v2025-protocol-error-failed")
class ProtocolErrorCompletes(FakeServer):
    async def change(self, task: Task, status: str, message: str | None = None) -> None:
        completes = (task.tool, status) == ("protocol_error", "failed")
        await super().change(task, "completed" if completes else status, message)


@plant("v2025-protocol-error-result")
class OtherProtocolError(FakeServer):
    def final(self, task: Task) -> Message:
        if task.tool == "protocol_error":
            raise Rejected(-32603, "it broke down")
        return super().final(task)


@plant("v2025-protocol-error-result")
class ProtocolErrorAsResult(FakeServer):
    def final(self, task: Task) -> Message:
        return {"_meta": {}} if task.tool == "protocol_error" else super().final(task)


@plant("v2025-failed-message")
class FailsSilently(FakeServer):
    def failure_message(self, task: Task) -> str | None:
        del task


@plant("v2025-list-shape")
class ListWithoutTtl(OtherView):
    where, missing = ("list",), "ttl"


@plant("v2025-list-complete")
class OnePageOnly(FakeServer):
    def list(self, session: Session, params: Message) -> Message:
        return {"tasks": super().list(session, params)["tasks"]}


@plant("v2025-list-stable")
class PagesByOffset(FakeServer):
    def list(self, session: Session, params: Message) -> Message:
        start = self.read_cursor(params.get("cursor"))
        newest: list[Any] = [task for task in reversed(self.tasks.values()) if self.is_listed(session, task)]
        page: Message = {"tasks": [self.view(task, "list") for task in newest[start : start + PAGE]]}
        return {**page, "nextCursor": f"after-{start + PAGE}"} if len(newest) > start + PAGE else page


@plant("v2025-list-agrees")
class ListIsBehind(OtherView):
    where, wrong = ("list",), {"status": "working"}


@plant("v2025-list-cursor-32602")
class AnyCursor(FakeServer):
    def refuse_cursor(self) -> int:
        return 0


@plant("v2025-list-no-related-task")
class ListNamesTask(FakeServer):
    def list(self, session: Session, params: Message) -> Message:
        return {**super().list(session, params), **RELATED_TO}


@plant("v2025-list-private", mode="http")
class ListsForEveryCaller(FakeServer):
    def is_listed(self, session: Session, task: Task) -> bool:
        del session, task
        return True


@plant("v2025-errors-informative")
class SpeechlessErrors(FakeServer):
    def refuse_unknown(self, method: str) -> Task:
        del method
        raise Rejected(INVALID, "")


@plant("v2025-steady")
class WearsOut(FakeServer):
    """Rejects one call on each connection that was used for a while."""

    calls = 0

    async def call(self, session: Session, params: Message, request_id: object) -> Message:
        self.calls += 1
        if self.calls == 40:
            raise Rejected(NOT_FOUND, "worn out")
        return await super().call(session, params, request_id)
