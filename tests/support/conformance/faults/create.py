"""Faults in the handshake, in the list of tools, and in creating tasks."""

from datetime import UTC, datetime, timedelta

from tests.support.conformance.fake_server import FakeServer
from tests.support.conformance.fake_task import IMMEDIATE, INVALID, Message, Rejected, Session, Task, is_object, stamp
from tests.support.conformance.faults.base import Fault, planter

FAULTS: list[Fault] = []
plant = planter(FAULTS)


@plant("v2025-version")
class OldVersion(FakeServer):
    def initialize(self, session: Session, params: Message) -> Message:
        return {**super().initialize(session, params), "protocolVersion": "2025-06-18"}


@plant("v2025-capability-declared", may_fail=["v2025-undeclared-ignored", "v2025-undeclared-list-32601"])
class DeclaredElsewhere(FakeServer):
    def initialize(self, session: Session, params: Message) -> Message:
        result = super().initialize(session, params)
        return {**result, "capabilities": {"experimental": {"tasks": self.capability()}}}


@plant("v2025-capability-shape")
class BooleanCapability(FakeServer):
    def capability(self) -> Message:
        return {**super().capability(), "list": True}


@plant("v2025-undeclared-ignored", may_fail=["v2025-capability-declared"])
class TasksUndeclared(FakeServer):
    def capability(self) -> Message:
        return {"list": {}, "cancel": {}}


@plant("v2025-undeclared-list-32601")
class ListUndeclared(FakeServer):
    def initialize(self, session: Session, params: Message) -> Message:
        result = super().initialize(session, params)
        del result["capabilities"]["tasks"]["list"]
        return result


@plant("v2025-undeclared-cancel-32601")
class CancelUndeclared(FakeServer):
    def initialize(self, session: Session, params: Message) -> Message:
        result = super().initialize(session, params)
        del result["capabilities"]["tasks"]["cancel"]
        return result


@plant("v2025-tool-support-values")
class OtherWord(FakeServer):
    def tools(self) -> list[Message]:
        return [*super().tools(), self.tool("extra", "sometimes")]


@plant("v2025-tool-support-exists")
class NoSupport(FakeServer):
    def tool(self, name: str, support: str | None) -> Message:
        del support
        return super().tool(name, None)


@plant("v2025-tool-forbidden-32601")
class ForbiddenIgnored(FakeServer):
    def refuse_task(self, session: Session, name: str) -> Message:
        del session
        return self.finished(name)


@plant("v2025-tool-required-32601")
class OtherCodeForRequired(FakeServer):
    def refuse_plain(self, name: str) -> Message:
        raise Rejected(-32600, f"{name} needs a task")


@plant("v2025-tool-optional-plain", may_fail=["v2025-result-same-as-plain"])
class TaskUnrequested(FakeServer):
    async def call_plainly(self, session: Session, name: str, request_id: object) -> Message:
        if name == "quick":
            return await self.call_as_task(session, name, {"task": {}})
        return await super().call_plainly(session, name, request_id)


@plant("v2025-unknown-tool-fails")
class UnknownToolWorks(FakeServer):
    async def call(self, session: Session, params: Message, request_id: object) -> Message:
        is_known = params["name"] != "no-tool-has-this-name"
        return await super().call(session, params if is_known else {**params, "name": "quick"}, request_id)


@plant("v2025-create-result")
class ResultBesideTask(FakeServer):
    def created(self, task: Task) -> Message:
        return {**super().created(task), "content": []}


class OtherView(FakeServer):
    """Reports one field wrongly in one place."""

    where: tuple[str, ...] = ()
    wrong: Message = {}  # noqa: RUF012 - overridden, never changed
    missing: str | None = None

    def view(self, task: Task, where: str) -> Message:
        view = super().view(task, where)
        if where not in self.where:
            return view
        return {key: value for key, value in {**view, **self.wrong}.items() if key != self.missing}


@plant("v2025-create-shape")
class FloatPollInterval(OtherView):
    where, wrong = ("create",), {"pollInterval": 50.0}


@plant("v2025-create-working")
class BeginsCompleted(FakeServer):
    def view(self, task: Task, where: str) -> Message:
        view = super().view(task, where)
        return {**view, "status": "completed"} if (where, task.tool) == ("create", "quick") else view


@plant("v2025-create-soon", mode="http")
class CreatesLate(FakeServer):
    late = 0

    async def call_as_task(self, session: Session, name: str, params: Message) -> Message:
        created = await super().call_as_task(session, name, params)
        # Only the first tasks, since all other checks with a slow task would be late too.
        if name == "slow" and self.late < 2:
            self.late += 1
            task = self.tasks[created["task"]["taskId"]]
            while not task.has_ended:
                await task.changed.wait()
        return created


@plant("v2025-task-id-string")
class NumberForId(OtherView):
    where, wrong = ("get",), {"taskId": 7}


@plant("v2025-task-id-unique")
class RepeatedIds(FakeServer):
    last = ""
    in_a_row = 0

    async def dispatch(self, session: Session, method: str, params: Message, request_id: object) -> Message:
        self.in_a_row = self.in_a_row + 1 if method == "tools/call" else 0
        return await super().dispatch(session, method, params, request_id)

    def new_id(self, params: Message) -> str:
        self.last = self.last if self.in_a_row == 4 else super().new_id(params)
        return self.last


@plant("v2025-task-id-generated")
class CallersId(FakeServer):
    def new_id(self, params: Message) -> str:
        return params["task"].get("taskId") or super().new_id(params)


@plant("v2025-task-id-unguessable", mode="http")
class Counter(FakeServer):
    def new_id(self, params: Message) -> str:
        del params
        return f"task-{next(self.numbers):020}"


@plant("v2025-task-id-unguessable", mode="http")
class ShortIds(FakeServer):
    def new_id(self, params: Message) -> str:
        return super().new_id(params)[:8]


@plant("v2025-task-field-bad-32602")
class AnyTaskField(FakeServer):
    def check_task(self, options: object) -> Message:
        return super().check_task(options) if is_object(options) else {}


@plant("v2025-progress-token-bad-32602")
class AnyToken(FakeServer):
    def check_token(self, token: object) -> None:
        del token


@plant("v2025-immediate-response")
class OddImmediateResponse(FakeServer):
    def created(self, task: Task) -> Message:
        return {**super().created(task), "_meta": {IMMEDIATE: {"text": "it takes a while"}}}


@plant("v2025-times-iso-8601")
class NumberForTime(OtherView):
    where, wrong = ("get",), {"lastUpdatedAt": 1_763_550_000}


@plant("v2025-times-rfc-3339")
class NoOffset(FakeServer):
    def view(self, task: Task, where: str) -> Message:
        view = super().view(task, where)
        return {key: value.removesuffix("Z") if key.endswith("At") else value for key, value in view.items()}


@plant("v2025-times-created-stays")
class CreatedMoves(FakeServer):
    def view(self, task: Task, where: str) -> Message:
        view = super().view(task, where)
        later = stamp(task.created + timedelta(minutes=1))
        return view if where == "create" else {**view, "createdAt": later, "lastUpdatedAt": later}


@plant("v2025-times-created-stays")
class UpdatedBeforeCreated(OtherView):
    where, wrong = ("get",), {"lastUpdatedAt": "2020-01-01T00:00:00Z"}


@plant("v2025-times-updated-stays")
class UpdatedAtEachRead(FakeServer):
    def view(self, task: Task, where: str) -> Message:
        now = datetime.now(UTC).isoformat()  # noqa: TID251 - the fault
        return {**super().view(task, where), "lastUpdatedAt": now}


@plant("v2025-ttl-reported")
class FloatTtl(OtherView):
    where, wrong = ("get",), {"ttl": 60_000.0}


@plant("v2025-ttl-reported")
class NoTtl(OtherView):
    where, missing = ("create",), "ttl"


@plant("v2025-ttl-bad-32602")
class AnyTtl(FakeServer):
    def refuse_ttl(self) -> Message:
        return {}


@plant("v2025-ttl-limited")
class EndlessTtl(FakeServer):
    def choose_ttl(self, options: int | None) -> int:
        return 60_000 if options is None else options


@plant("v2025-ttl-honored")
class DeletesEarly(FakeServer):
    """Deletes a result that was returned and whose task was read since."""

    async def get(self, session: Session, params: Message) -> Message:
        task = self.find(session, params, "get")
        task.reads += task.reads % 2
        return await super().get(session, params)

    def final(self, task: Task) -> Message:
        if task.reads == 2:
            raise Rejected(INVALID, "task not found")
        task.reads = 1
        return super().final(task)


@plant("v2025-ttl-expired")
class KeepsForEver(FakeServer):
    def find(self, session: Session, params: Message, method: str) -> Task:
        task = self.tasks.get(str(params.get("taskId")))
        return task if task is not None and task.is_expired else super().find(session, params, method)
