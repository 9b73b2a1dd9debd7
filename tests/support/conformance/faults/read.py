"""Faults in looking at tasks, in their results, and in lists."""

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
    Refused,
    Session,
    Task,
    text,
)
from tests.support.conformance.faults.base import Fault, planter
from tests.support.conformance.faults.create import OtherView

FAULTS: list[Fault] = []
plant = planter(FAULTS)
RELATED_TO: Message = {"_meta": {RELATED: {"taskId": "the same once more"}}}


@plant("g1-get-at-once", may=["*"])
class UnknownAtFirst(FakeServer):
    async def get(self, session: Session, params: Message) -> Message:
        task = self.find(session, params, "get")
        task.reads += 1
        if task.reads == 1:
            raise Refused(INVALID, "task not found")
        return await super().get(session, params)


@plant("g1-get-shape")
class NumberForMessage(OtherView):
    where, wrong = ("get",), {"statusMessage": 7}


@plant("g1-get-no-related-task")
class GetNamesTask(OtherView):
    where, wrong = ("get",), RELATED_TO


@plant("g1-get-no-stream", way="http")
class GetStreams(FakeServer):
    streamed = ("tools/call", "tasks/result", "tasks/get")

    async def dispatch(self, session: Session, method: str, params: Message, request_id: object) -> Message:
        answer = await super().dispatch(session, method, params, request_id)
        if method == "tasks/get":
            news = {"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": answer}
            await session.send(news, of=request_id)
        return answer


@plant("g1-terminal-final", may=["g1-status-true"])
class ChangesAfterTheEnd(FakeServer):
    async def call(self, session: Session, params: Message, request_id: object) -> Message:
        for task in self.tasks.values():
            task.status = "working" if task.reads and task.tool == "quick" else task.status
        return await super().call(session, params, request_id)

    def final(self, task: Task) -> Message:
        task.reads += 1
        return super().final(task)


class OtherCode(FakeServer):
    """Has a code of its own for ids that it does not know, or can't read."""

    unknown = ""
    unreadable = ""

    def refuse_unknown(self, method: str) -> Task:
        if method == self.unknown:
            raise Refused(-32001, "task not found")
        return super().refuse_unknown(method)

    def refuse_id(self, method: str) -> Task:
        if method == self.unreadable:
            raise Refused(-32603, "unexpected None")
        return super().refuse_id(method)


@plant("g1-get-unknown-32602")
class OtherCodeInGet(OtherCode):
    unknown = "get"


@plant("g1-result-unknown-32602")
class OtherCodeInResult(OtherCode):
    unknown = "result"


@plant("g1-cancel-unknown-32602")
class OtherCodeInCancel(OtherCode):
    unknown = "cancel"


@plant("g1-get-invalid-32602")
class CrashInGet(OtherCode):
    unreadable = "get"


@plant("g1-result-invalid-32602")
class CrashInResult(OtherCode):
    unreadable = "result"


@plant("g1-cancel-invalid-32602")
class CrashInCancel(OtherCode):
    unreadable = "cancel"


class MetaFirst(FakeServer):
    """Takes the task from `_meta` in one method."""

    method = ""

    def find(self, session: Session, params: Message, method: str) -> Task:
        related = params.get("_meta", {}).get(RELATED)
        return super().find(session, related if related and method == self.method else params, method)


@plant("g1-get-related-task-ignored")
class MetaFirstInGet(MetaFirst):
    method = "get"


@plant("g1-result-related-task-ignored")
class MetaFirstInResult(MetaFirst):
    method = "result"


@plant("g1-cancel-related-task-ignored")
class MetaFirstInCancel(MetaFirst):
    method = "cancel"


@plant("g1-result-blocks")
class StatusLate(FakeServer):
    """The result is there before the status says so."""

    async def finish(self, task: Task, outcome: Message) -> None:
        await super().finish(task, outcome)
        if task.tool == "slow":
            task.reads = 1
            await asyncio.sleep(SLOW)
            task.reads = 0

    def view(self, task: Task, where: str) -> Message:
        view = super().view(task, where)
        return {**view, "status": "working"} if task.tool == "slow" and task.reads and where == "get" else view


@plant("g1-result-others-served", may=["g1-cancel-wakes", "g1-result-given-up"])
class OneAtATime(FakeServer):
    def __init__(self) -> None:
        super().__init__()
        self.turn = asyncio.Lock()

    async def dispatch(self, session: Session, method: str, params: Message, request_id: object) -> Message:
        task = self.tasks.get(str(params.get("taskId")))
        if method == "tasks/result" and task is not None and task.tool == "slow":
            async with self.turn:
                return await super().dispatch(session, method, params, request_id)
        async with self.turn:
            pass
        return await super().dispatch(session, method, params, request_id)


@plant("g1-result-same-as-plain")
class OtherResult(FakeServer):
    async def work(self, task: Task) -> Message:
        return text("done as a task") if task.tool == "quick" else await super().work(task)


@plant("g1-result-related-task")
class ResultNamesNoTask(FakeServer):
    def final(self, task: Task) -> Message:
        return {**super().final(task), "_meta": {}}


@plant("g1-result-again")
class ResultOnce(FakeServer):
    def final(self, task: Task) -> Message:
        task.reads += 1
        return {"content": []} if task.tool == "quick" and task.reads > 1 else super().final(task)


class FirstServedOnly(FakeServer):
    """Of several that wait for a result, one is answered."""

    only = ""

    async def result(self, session: Session, params: Message, request_id: object) -> Message:
        task = self.find(session, params, "result")
        waits = not task.has_ended and task.tool == self.only
        task.reads += 1
        if waits and task.reads > 1:
            await asyncio.Event().wait()
        return await super().result(session, params, request_id)


@plant("g1-result-two-waiters")
class OneWaiter(FirstServedOnly):
    only = "slow"


@plant("g1-result-given-up")
class GivingUpCancels(FakeServer):
    def give_up(self, session: Session, request_id: object) -> None:
        super().give_up(session, request_id)
        for task in self.tasks.values():
            if task.tool == "slow" and not task.has_ended:
                self.spawn(self.stop(task))


@plant("g1-result-disconnected", way="http")
class DroppingCancels(FakeServer):
    def dropped(self, session: Session, request_id: object) -> None:
        del session
        job = next((job for (_, key), job in self.requests.items() if key == request_id), None)
        if job is None or job.done():
            return
        for task in self.tasks.values():
            if task.tool == "slow" and not task.has_ended:
                self.spawn(self.stop(task))


@plant("g1-result-others-leave", way="http")
class LeavingFailsAll(FakeServer):
    def leave(self, session: Session) -> None:
        super().leave(session)
        for task in self.tasks.values():
            if task.tool == "slow":
                self.spawn(self.finish(task, {"error": {"code": -32603, "message": "shut down"}}))


@plant("g1-tool-error-failed")
class ToolErrorCompletes(FakeServer):
    async def change(self, task: Task, status: str, message: str | None = None) -> None:
        await super().change(task, "completed" if (task.tool, status) == ("tool_error", "failed") else status, message)


@plant("g1-tool-error-result")
class ToolErrorIsProtocolError(FakeServer):
    def final(self, task: Task) -> Message:
        if task.tool == "tool_error":
            raise Refused(-32603, "the tool failed")
        return super().final(task)


@plant("g1-protocol-error-failed")
class ProtocolErrorCompletes(FakeServer):
    async def change(self, task: Task, status: str, message: str | None = None) -> None:
        completes = (task.tool, status) == ("protocol_error", "failed")
        await super().change(task, "completed" if completes else status, message)


@plant("g1-protocol-error-result")
class OtherProtocolError(FakeServer):
    def final(self, task: Task) -> Message:
        if task.tool == "protocol_error":
            raise Refused(-32603, "it broke down")
        return super().final(task)


@plant("g1-protocol-error-result")
class ProtocolErrorAsResult(FakeServer):
    def final(self, task: Task) -> Message:
        return {"_meta": {}} if task.tool == "protocol_error" else super().final(task)


@plant("g1-failed-message")
class FailsSilently(FakeServer):
    def last_words(self, task: Task) -> str | None:
        del task


@plant("g1-list-shape")
class ListWithoutTtl(OtherView):
    where, missing = ("list",), "ttl"


@plant("g1-list-complete")
class OnePageOnly(FakeServer):
    def list(self, session: Session, params: Message) -> Message:
        return {"tasks": super().list(session, params)["tasks"]}


@plant("g1-list-stable")
class PagesByOffset(FakeServer):
    def list(self, session: Session, params: Message) -> Message:
        start = self.read_cursor(params.get("cursor"))
        newest: list[Any] = [task for task in reversed(self.tasks.values()) if self.is_listed(session, task)]
        page: Message = {"tasks": [self.view(task, "list") for task in newest[start : start + PAGE]]}
        return {**page, "nextCursor": f"after-{start + PAGE}"} if len(newest) > start + PAGE else page


@plant("g1-list-agrees")
class ListIsBehind(OtherView):
    where, wrong = ("list",), {"status": "working"}


@plant("g1-list-cursor-32602")
class AnyCursor(FakeServer):
    def refuse_cursor(self) -> int:
        return 0


@plant("g1-list-no-related-task")
class ListNamesTask(FakeServer):
    def list(self, session: Session, params: Message) -> Message:
        return {**super().list(session, params), **RELATED_TO}


@plant("g1-list-private", way="http")
class ListsForEverybody(FakeServer):
    def is_listed(self, session: Session, task: Task) -> bool:
        del session, task
        return True


@plant("g1-errors-informative")
class SpeechlessErrors(FakeServer):
    def refuse_unknown(self, method: str) -> Task:
        del method
        raise Refused(INVALID, "")


@plant("g1-steady")
class WearsOut(FakeServer):
    """Refuses one call on each connection, when it is no longer new."""

    calls = 0

    async def call(self, session: Session, params: Message, request_id: object) -> Message:
        self.calls += 1
        if self.calls == 40:
            raise Refused(NOT_FOUND, "worn out")
        return await super().call(session, params, request_id)
