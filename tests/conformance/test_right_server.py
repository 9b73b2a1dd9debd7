"""A conforming server passes over every transport, with or without the optional features."""

import asyncio

import pytest

from raincheck.conformance import CheckOutcome, Report
from tests.support.conformance.fake_server import FakeServer
from tests.support.conformance.fake_task import Message, Session, Task
from tests.support.conformance.faults.base import Mode
from tests.support.conformance.runs import complaints, try_suite

DECLARED = {"v2025-undeclared-ignored", "v2025-undeclared-list-32601", "v2025-undeclared-cancel-32601"}
"""Checks of servers that do not declare a capability: see `MinimalServer` below."""

ANONYMOUS = {"v2025-task-id-unguessable", "v2025-list-private"}
HTTP = {"v2025-get-no-stream", "v2025-result-disconnected", "v2025-result-other-disconnects"}


class MinimalServer(FakeServer):
    """Has no optional features."""

    def capability(self) -> Message:
        return {"requests": {"tools": {"call": {}}}}

    def created(self, task: Task) -> Message:
        return {"task": self.view(task, "create")}

    async def notify(self, task: Task) -> None:
        """Send no notifications, which are optional."""

    async def report(self, task: Task, step: int) -> None:
        """Send no progress, which is optional."""


class NoTasks(FakeServer):
    """Does not support tasks, and ignores task parameters."""

    def initialize(self, session: Session, params: Message) -> Message:
        result = super().initialize(session, params)
        return {**result, "capabilities": {"tools": {}}}

    def tool(self, name: str, support: str | None) -> Message:
        del support
        return super().tool(name, None)

    async def dispatch(self, session: Session, method: str, params: Message, request_id: object) -> Message:
        if method.startswith("tasks/"):
            method = "unknown"
        params.pop("task", None)
        return await super().dispatch(session, method, params, request_id)


class ForgetsCancelled(FakeServer):
    """Deletes a task as soon as it is cancelled."""

    async def stop(self, task: Task) -> None:
        await super().stop(task)
        del self.tasks[task.id]


class AlwaysStreams(FakeServer):
    """Sends every response on a stream that ends with the response, as some SDKs do."""

    streamed = ("ping", "tools/list", "tools/call", "tasks/get", "tasks/result", "tasks/list", "tasks/cancel")


SERVERS: dict[str, tuple[type[FakeServer], Mode]] = {
    "stdio": (FakeServer, "stdio"),
    "http": (FakeServer, "http"),
    "owners": (FakeServer, "owners"),
    "minimal": (MinimalServer, "http"),
    "no tasks": (NoTasks, "http"),
    "forgets cancelled": (ForgetsCancelled, "http"),
    "always streams": (AlwaysStreams, "http"),
}


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    """Run the suite on all servers concurrently, since most of the time is waiting."""

    async def run() -> list[Report]:
        return await asyncio.gather(*(try_suite(*server) for server in SERVERS.values()))

    return dict(zip(SERVERS, asyncio.run(run()), strict=True))


def ids(report: Report, outcome: CheckOutcome) -> set[str]:
    return {result.check.id for result in report.with_outcome(outcome)}


@pytest.mark.parametrize("mode", ["stdio", "http", "owners"])
def test_a_conforming_server_passes_every_check(mode: str, reports: dict[str, Report]) -> None:
    report = reports[mode]
    assert complaints(report) == {}
    owners = {result.check.id for result in report.results if result.check.id.startswith("v2025-owner-")}
    skipped_checks = {"stdio": ANONYMOUS | HTTP | owners, "http": owners, "owners": ANONYMOUS}
    assert ids(report, CheckOutcome.SKIPPED) == DECLARED | skipped_checks[mode]
    assert report.server == {"name": "fake", "version": "1"}


@pytest.mark.parametrize("name", ["forgets cancelled", "always streams"])
def test_optional_behavior_is_not_reported(name: str, reports: dict[str, Report]) -> None:
    assert complaints(reports[name]) == {}


def test_a_server_without_optional_features_passes(reports: dict[str, Report]) -> None:
    report = reports["minimal"]
    assert complaints(report) == {}
    skipped_checks = {"v2025-list-complete", "v2025-cancel-stays", "v2025-status-shape", "v2025-progress-token"}
    assert skipped_checks <= ids(report, CheckOutcome.SKIPPED)
    assert {"v2025-undeclared-list-32601", "v2025-undeclared-cancel-32601"} <= ids(report, CheckOutcome.PASSED)
    reasons = {result.check.id: result.detail for result in report.results}
    assert reasons["v2025-list-complete"] == "tasks.list is not declared"
    assert reasons["v2025-status-shape"] == "the server sends no notifications/tasks/status, which are optional"


def test_a_server_without_tasks_fails_one_check_and_the_others_are_skipped(reports: dict[str, Report]) -> None:
    report = reports["no tasks"]
    assert set(complaints(report)) == {"v2025-capability-declared"}
    assert {"v2025-undeclared-ignored", "v2025-undeclared-list-32601"} <= ids(report, CheckOutcome.PASSED)
    assert len(ids(report, CheckOutcome.SKIPPED)) > 90
