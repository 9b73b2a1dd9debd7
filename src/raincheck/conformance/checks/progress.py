"""Checks of task progress: `notifications/progress`, for a caller that sent a progress token."""

import asyncio
import time
from dataclasses import dataclass
from itertools import pairwise
from weakref import WeakKeyDictionary

from raincheck.conformance.caller import ConformanceClient, TaskUnderTest
from raincheck.conformance.check import check
from raincheck.conformance.messages import Message, ReceivedMessage, shorten
from raincheck.conformance.outcome import NotApplicable, RequirementLevel, RequirementNotMet
from raincheck.conformance.shapes import expect_related, expect_result, related_task
from raincheck.conformance.transport.base import RpcConnection

METHOD = "notifications/progress"
ROLE = "reports_progress"
SECTION = "Progress: Behavior Requirements"
FIRST, SECOND, THIRD = TOKENS = ("g1-token", 20_251_125, "g1-cancelled")
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
    if caller.connection not in _records:
        mark = caller.connection.mark()
        tasks: dict[object, TaskUnderTest] = {token: await _begin(caller, token) for token in (FIRST, SECOND)}
        for begun in tasks.values():
            expect_result(await caller.get_result(begun.id))
        await caller.wait_quiet_period()
        _records[caller.connection] = ProgressRecord(tasks, _reports(caller, mark), caller.connection.mark())
    story = _records[caller.connection]
    if not story.reports:
        raise NotApplicable("the server reports no progress of tasks, which it need not")
    return story


async def _begin(caller: ConformanceClient, token: object) -> TaskUnderTest:
    return await caller.start_task(ROLE, _meta={"progressToken": token})


def _reports(caller: ConformanceClient, mark: int) -> list[ReceivedMessage]:
    """Return the progress notifications received since a mark."""
    return caller.connection.received_since(mark, METHOD)


@check(
    "g1-progress-token",
    RequirementLevel.MUST,
    SECTION,
    "Progress of a task has the token that came with the call, as it came: a string or a number.",
    "calls",
    ROLE,
)
async def progress_token(caller: ConformanceClient) -> None:
    story = await _record_progress(caller)
    for report in story.reports:
        token = report.params.get("progressToken")
        if not any(token == one and type(token) is type(one) for one in story.tasks):
            given = " and ".join(shorten(one) for one in story.tasks)
            raise RequirementNotMet(f"progressToken is {shorten(token)}, and {given} came with the calls")


@check(
    "g1-progress-related-task",
    RequirementLevel.MUST,
    "Associating Task-Related Messages",
    "Progress of a task names the task in its _meta; of two at once, each names its own.",
    "calls",
    ROLE,
)
async def progress_related_task(caller: ConformanceClient) -> None:
    story = await _record_progress(caller)
    for report in story.reports:
        begun = _owner(story, report)
        if begun is not None:
            expect_related(
                report.params, begun.id, f"{METHOD} with the token {shorten(report.params['progressToken'])}"
            )


def _owner(story: ProgressRecord, report: ReceivedMessage) -> TaskUnderTest | None:
    """Return the task of a report, by its token. A token that was never sent is for another check."""
    token = report.params.get("progressToken")
    return story.tasks.get(token) if isinstance(token, str | int) else None


@check(
    "g1-progress-increases",
    RequirementLevel.MUST,
    "Progress: Progress Flow",
    "The progress of a task is a number that increases with each notification.",
    "calls",
    ROLE,
)
async def progress_increases(caller: ConformanceClient) -> None:
    story = await _record_progress(caller)
    for key in {(report.stream, str(report.params.get("progressToken"))) for report in story.reports}:
        same = [one for one in story.reports if (one.stream, str(one.params.get("progressToken"))) == key]
        values = [_number(one.params.get("progress")) for one in same]
        if any(after <= before for before, after in pairwise(values)):
            raise RequirementNotMet(f"the progress went {', '.join(map(str, values))}")


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequirementNotMet(f"progress is {shorten(value)}, and should be a number")
    return value


@check(
    "g1-progress-unasked",
    RequirementLevel.MUST_NOT,
    SECTION,
    "A caller that gave no token gets no progress.",
    "calls",
    ROLE,
)
async def progress_unasked(caller: ConformanceClient) -> None:
    mark = caller.connection.mark()
    begun = await caller.start_task(ROLE)
    await caller.get_result(begun.id)
    await caller.wait_quiet_period()
    for report in _reports(caller, mark):
        # Other checks cover late progress of earlier tasks.
        if report.params.get("progressToken") not in TOKENS or related_task(report.params) == begun.id:
            raise RequirementNotMet(f"no progressToken came with the call, and {shorten(report.params)} was reported")


@check(
    "g1-progress-ends",
    RequirementLevel.MUST,
    SECTION,
    "No progress comes when the task has ended.",
    "calls",
    ROLE,
)
async def progress_ends(caller: ConformanceClient) -> None:
    story = await _record_progress(caller)  # includes progress that was in transit when the tasks ended
    await caller.wait_quiet_period()
    _expect_none([one for one in _reports(caller, story.end_mark) if _owner(story, one) is not None], "completed")


@check(
    "g1-progress-cancelled",
    RequirementLevel.MUST,
    SECTION,
    "No progress comes when the task was cancelled.",
    "calls",
    ROLE,
    "cancel",
)
async def progress_cancelled(caller: ConformanceClient) -> None:
    mark = caller.connection.mark()
    begun = await _begin(caller, THIRD)
    waiting = await caller.request_result(begun.id)

    def seen() -> Message | None:
        ended: Message | None = {} if waiting.is_answered else None
        return next((report.message for report in _reports(caller, mark)), ended)

    if not await caller.connection.wait_for(seen, "no progress came"):
        raise NotApplicable("the server reports no progress of tasks, which it need not")
    if (await caller.cancel_task(begun.id)).error is not None:
        raise NotApplicable(f"the tool of the role {ROLE!r} ended before it could be cancelled: let it take longer")
    await caller.wait_quiet_period()  # for progress that was in transit
    end = caller.connection.mark()
    # Wait until the work would have ended, since its report interval is unknown.
    await asyncio.sleep(max(begun.started_at + caller.role(ROLE).takes - time.monotonic(), 0))
    await caller.wait_quiet_period()
    _expect_none(_reports(caller, end), "cancelled")


def _expect_none(reports: list[ReceivedMessage], status: str) -> None:
    if reports:
        raise RequirementNotMet(f"the task was {status}, and later {shorten(reports[0].params)} came")


CHECKS = (
    progress_token,
    progress_related_task,
    progress_increases,
    progress_unasked,
    progress_ends,
    progress_cancelled,
)
