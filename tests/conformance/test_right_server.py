"""A server that does everything right passes: over every transport, and whatever it leaves out by right."""

import asyncio

import pytest

from raincheck.conformance import CheckOutcome, Report
from tests.support.conformance.fake_server import FakeServer
from tests.support.conformance.fake_task import Message, Session, Task
from tests.support.conformance.faults.base import Way
from tests.support.conformance.runs import complaints, try_suite

DECLARED = {"g1-undeclared-ignored", "g1-undeclared-list-32601", "g1-undeclared-cancel-32601"}
"""These are about servers that do not declare something: see `LeavesOut` below."""

ANONYMOUS = {"g1-task-id-unguessable", "g1-list-private"}
HTTP = {"g1-get-no-stream", "g1-result-disconnected", "g1-result-others-leave"}


class LeavesOut(FakeServer):
    """Declares little, and says little: all of it by right."""

    def capability(self) -> Message:
        return {"requests": {"tools": {"call": {}}}}

    def created(self, task: Task) -> Message:
        return {"task": self.view(task, "create")}

    async def notify(self, task: Task) -> None:
        """No notifications: nobody may rely on them."""

    async def report(self, task: Task, step: int) -> None:
        """No progress: likewise."""


class NoTasks(FakeServer):
    """Knows nothing of tasks, and ignores what is said of them."""

    def initialize(self, session: Session, params: Message) -> Message:
        said = super().initialize(session, params)
        return {**said, "capabilities": {"tools": {}}}

    def tool(self, name: str, support: str | None) -> Message:
        del support
        return super().tool(name, None)

    async def dispatch(self, session: Session, method: str, params: Message, request_id: object) -> Message:
        if method.startswith("tasks/"):
            method = "unknown"
        params.pop("task", None)
        return await super().dispatch(session, method, params, request_id)


class ForgetsCancelled(FakeServer):
    """Forgets a task as soon as it is cancelled."""

    async def stop(self, task: Task) -> None:
        await super().stop(task)
        del self.tasks[task.id]


class AlwaysStreams(FakeServer):
    """Answers everything on a stream that ends with the answer, as some SDKs do."""

    streamed = ("ping", "tools/list", "tools/call", "tasks/get", "tasks/result", "tasks/list", "tasks/cancel")


SERVERS: dict[str, tuple[type[FakeServer], Way]] = {
    "stdio": (FakeServer, "stdio"),
    "http": (FakeServer, "http"),
    "owners": (FakeServer, "owners"),
    "leaves out": (LeavesOut, "http"),
    "no tasks": (NoTasks, "http"),
    "forgets cancelled": (ForgetsCancelled, "http"),
    "always streams": (AlwaysStreams, "http"),
}


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    """What is found of each: all at once, since most of it is waiting."""

    async def find() -> list[Report]:
        return await asyncio.gather(*(try_suite(*server) for server in SERVERS.values()))

    return dict(zip(SERVERS, asyncio.run(find()), strict=True))


def ids(report: Report, outcome: CheckOutcome) -> set[str]:
    return {finding.check.id for finding in report.with_outcome(outcome)}


@pytest.mark.parametrize("way", ["stdio", "http", "owners"])
def test_a_server_that_is_right_passes_every_check(way: str, reports: dict[str, Report]) -> None:
    report = reports[way]
    assert complaints(report) == {}
    owners = {finding.check.id for finding in report.results if finding.check.id.startswith("g1-owner-")}
    left_out = {"stdio": ANONYMOUS | HTTP | owners, "http": owners, "owners": ANONYMOUS}
    assert ids(report, CheckOutcome.SKIPPED) == DECLARED | left_out[way]
    assert report.server == {"name": "fake", "version": "1"}


@pytest.mark.parametrize("name", ["forgets cancelled", "always streams"])
def test_what_a_server_is_free_to_do_is_no_reason_to_complain(name: str, reports: dict[str, Report]) -> None:
    assert complaints(reports[name]) == {}


def test_a_server_that_leaves_out_what_it_may_has_no_complaints(reports: dict[str, Report]) -> None:
    report = reports["leaves out"]
    assert complaints(report) == {}
    left_out = {"g1-list-complete", "g1-cancel-stays", "g1-status-shape", "g1-progress-token"}
    assert left_out <= ids(report, CheckOutcome.SKIPPED)
    assert {"g1-undeclared-list-32601", "g1-undeclared-cancel-32601"} <= ids(report, CheckOutcome.PASSED)
    reasons = {finding.check.id: finding.detail for finding in report.results}
    assert reasons["g1-list-complete"] == "tasks.list is not declared"
    assert reasons["g1-status-shape"] == "the server sends no notifications/tasks/status, which it need not"


def test_a_server_without_tasks_fails_one_check_and_the_rest_is_left_out(reports: dict[str, Report]) -> None:
    report = reports["no tasks"]
    assert set(complaints(report)) == {"g1-capability-declared"}
    assert {"g1-undeclared-ignored", "g1-undeclared-list-32601"} <= ids(report, CheckOutcome.PASSED)
    assert len(ids(report, CheckOutcome.SKIPPED)) > 90
