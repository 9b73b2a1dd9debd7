"""Checks of task progress: `notifications/progress`, for a caller that sent a progress token."""

import asyncio
import time
from dataclasses import dataclass
from itertools import pairwise
from weakref import WeakKeyDictionary

from raincheck.conformance.caller import ConformanceClient, TaskUnderTest
from raincheck.conformance.check import MUST, MUST_NOT, Topic
from raincheck.conformance.connection import Message, ReceivedMessage, RpcConnection, shorten
from raincheck.conformance.requirements import (
    NotApplicable,
    RequirementNotMet,
    expect_related,
    expect_result,
    related_task,
)

METHOD = "notifications/progress"
ROLE = "reports_progress"
topic = Topic("Progress", "Progress: Behavior Requirements", "calls", ROLE)
FIRST, SECOND, THIRD = TOKENS = ("v2025-token", 20_251_125, "v2025-cancelled")
"""The progress tokens that these checks send."""


@dataclass(frozen=True)
class ProgressRecord:
    """Two tasks that ran concurrently to their ends: the tasks by token, and all progress received."""

    tasks: dict[object, TaskUnderTest]
    reports: list[ReceivedMessage]
    end_mark: int
    """The mark in the history after which no progress of these tasks may arrive."""


_records: WeakKeyDictionary[RpcConnection, ProgressRecord] = WeakKeyDictionary()


async def _record_progress(caller: ConformanceClient) -> ProgressRecord:
    """Record progress once per connection. Several checks share the record, since it takes time to make."""
    if caller not in _records:
        mark = caller.mark()
        tasks: dict[object, TaskUnderTest] = {token: await _start(caller, token) for token in (FIRST, SECOND)}
        for new_task in tasks.values():
            expect_result(await caller.get_result(new_task.id))
        await caller.wait_quiet_period()
        _records[caller] = ProgressRecord(tasks, _reports(caller, mark), caller.mark())
    record = _records[caller]
    if not record.reports:
        raise NotApplicable("the server reports no progress of tasks, which is optional")
    return record


async def _start(caller: ConformanceClient, token: object) -> TaskUnderTest:
    return await caller.start_task(ROLE, _meta={"progressToken": token})


def _reports(caller: ConformanceClient, mark: int) -> list[ReceivedMessage]:
    """Return the progress notifications received since a mark."""
    return caller.received_since(mark, METHOD)


@topic.check(MUST, "v2025-progress-token")
async def progress_token(caller: ConformanceClient) -> None:
    """Progress of a task has the token of its call, unchanged: a string or a number."""
    record = await _record_progress(caller)
    for report in record.reports:
        token = report.params.get("progressToken")
        if not any(token == sent and type(token) is type(sent) for sent in record.tasks):
            expected = " or ".join(shorten(sent) for sent in record.tasks)
            raise RequirementNotMet(f"progressToken is {shorten(token)}; expected {expected}")


@topic.check(MUST, "v2025-progress-related-task", section="Associating Task-Related Messages")
async def progress_related_task(caller: ConformanceClient) -> None:
    """Progress of a task names its own task in _meta, also when two tasks run at once."""
    record = await _record_progress(caller)
    for report in record.reports:
        new_task = _task_of(record, report)
        if new_task is not None:
            expect_related(
                report.params, new_task.id, f"{METHOD} with the token {shorten(report.params['progressToken'])}"
            )


def _task_of(record: ProgressRecord, report: ReceivedMessage) -> TaskUnderTest | None:
    """Return the task of a report, by its token. A token that was never sent is for another check."""
    token = report.params.get("progressToken")
    return record.tasks.get(token) if isinstance(token, str | int) else None


@topic.check(MUST, "v2025-progress-increases", section="Progress: Progress Flow")
async def progress_increases(caller: ConformanceClient) -> None:
    """The progress of a task is a number that increases with each notification."""
    record = await _record_progress(caller)
    for key in {(report.stream, str(report.params.get("progressToken"))) for report in record.reports}:
        group = [report for report in record.reports if (report.stream, str(report.params.get("progressToken"))) == key]
        values = [_number(report.params.get("progress")) for report in group]
        if any(after <= before for before, after in pairwise(values)):
            raise RequirementNotMet(
                f"the reported progress was {', '.join(map(str, values))}; expected increasing numbers"
            )


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequirementNotMet(f"progress is {shorten(value)}; expected a number")
    return value


@topic.check(MUST_NOT, "v2025-progress-unrequested")
async def progress_unrequested(caller: ConformanceClient) -> None:
    """A call without a progress token gets no progress."""
    mark = caller.mark()
    new_task = await caller.start_task(ROLE)
    await caller.get_result(new_task.id)
    await caller.wait_quiet_period()
    for report in _reports(caller, mark):
        # Other checks cover late progress of earlier tasks.
        if report.params.get("progressToken") not in TOKENS or related_task(report.params) == new_task.id:
            raise RequirementNotMet(f"the call had no progressToken, but the server reported {shorten(report.params)}")


@topic.check(MUST, "v2025-progress-ends")
async def progress_ends(caller: ConformanceClient) -> None:
    """No progress is reported after the task has ended."""
    record = await _record_progress(caller)  # includes progress that was in transit when the tasks ended
    await caller.wait_quiet_period()
    _expect_none(
        [report for report in _reports(caller, record.end_mark) if _task_of(record, report) is not None], "completed"
    )


@topic.check(MUST, "v2025-progress-cancelled", "cancel")
async def progress_cancelled(caller: ConformanceClient) -> None:
    """No progress is reported after the task was cancelled."""
    mark = caller.mark()
    new_task = await _start(caller, THIRD)
    pending = await caller.request_result(new_task.id)

    def first_report() -> Message | None:
        ended: Message | None = {} if pending.is_answered else None
        return next((report.message for report in _reports(caller, mark)), ended)

    if not await caller.wait_for(first_report, "the server sent no progress"):
        raise NotApplicable("the server reports no progress of tasks, which is optional")
    if (await caller.cancel_task(new_task.id)).error is not None:
        raise NotApplicable(f"the tool of the role {ROLE!r} ended before it could be cancelled: make it run longer")
    await caller.wait_quiet_period()  # for progress that was in transit
    end = caller.mark()
    # Wait until the work would have ended, since its report interval is unknown.
    await asyncio.sleep(max(new_task.started_at + caller.role(ROLE).takes - time.monotonic(), 0))
    await caller.wait_quiet_period()
    _expect_none(_reports(caller, end), "cancelled")


def _expect_none(reports: list[ReceivedMessage], status: str) -> None:
    if reports:
        raise RequirementNotMet(f"the server reported {shorten(reports[0].params)} after the task was {status}")
