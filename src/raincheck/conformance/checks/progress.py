"""Progress of a task: `notifications/progress`, for a caller that gave a token."""

import asyncio
import time
from dataclasses import dataclass
from itertools import pairwise
from weakref import WeakKeyDictionary

from raincheck.conformance.caller import Begun, Caller
from raincheck.conformance.check import check
from raincheck.conformance.messages import Came, Message, shorten
from raincheck.conformance.outcome import Inapplicable, Level, Unmet
from raincheck.conformance.shapes import expect_related, expect_result, related_task
from raincheck.conformance.transport.base import Connection

METHOD = "notifications/progress"
ROLE = "reports_progress"
SECTION = "Progress: Behavior Requirements"
FIRST, SECOND, THIRD = GIVEN = ("g1-token", 20_251_125, "g1-cancelled")
"""The tokens that are given here."""


@dataclass(frozen=True)
class Story:
    """Two tasks that ran side by side to their ends: the tasks by their tokens, and all the progress that came."""

    tasks: dict[object, Begun]
    reports: list[Came]
    end: int
    """The place in what came after which nothing of them should."""


_stories: WeakKeyDictionary[Connection, Story] = WeakKeyDictionary()


async def _story(caller: Caller) -> Story:
    """The story of this connection: several checks look at the same one, since it takes its time."""
    if caller.connection not in _stories:
        mark = caller.connection.mark()
        tasks: dict[object, Begun] = {token: await _begin(caller, token) for token in (FIRST, SECOND)}
        for begun in tasks.values():
            expect_result(await caller.result(begun.id))
        await caller.stay_quiet()
        _stories[caller.connection] = Story(tasks, _reports(caller, mark), caller.connection.mark())
    story = _stories[caller.connection]
    if not story.reports:
        raise Inapplicable("the server reports no progress of tasks, which it need not")
    return story


async def _begin(caller: Caller, token: object) -> Begun:
    return await caller.begin(ROLE, _meta={"progressToken": token})


def _reports(caller: Caller, mark: int) -> list[Came]:
    """The progress that came since."""
    return caller.connection.since(mark, METHOD)


@check(
    "g1-progress-token",
    Level.MUST,
    SECTION,
    "Progress of a task has the token that came with the call, as it came: a string or a number.",
    "calls",
    ROLE,
)
async def progress_token(caller: Caller) -> None:
    story = await _story(caller)
    for report in story.reports:
        token = report.params.get("progressToken")
        if not any(token == one and type(token) is type(one) for one in story.tasks):
            given = " and ".join(shorten(one) for one in story.tasks)
            raise Unmet(f"progressToken is {shorten(token)}, and {given} came with the calls")


@check(
    "g1-progress-related-task",
    Level.MUST,
    "Associating Task-Related Messages",
    "Progress of a task names the task in its _meta; of two at once, each names its own.",
    "calls",
    ROLE,
)
async def progress_related_task(caller: Caller) -> None:
    story = await _story(caller)
    for report in story.reports:
        begun = _owner(story, report)
        if begun is not None:
            expect_related(
                report.params, begun.id, f"{METHOD} with the token {shorten(report.params['progressToken'])}"
            )


def _owner(story: Story, report: Came) -> Begun | None:
    """The task of a report, by its token. A token that nobody gave is for another check."""
    token = report.params.get("progressToken")
    return story.tasks.get(token) if isinstance(token, str | int) else None


@check(
    "g1-progress-increases",
    Level.MUST,
    "Progress: Progress Flow",
    "The progress of a task is a number that increases with each notification.",
    "calls",
    ROLE,
)
async def progress_increases(caller: Caller) -> None:
    story = await _story(caller)
    for key in {(report.stream, str(report.params.get("progressToken"))) for report in story.reports}:
        same = [one for one in story.reports if (one.stream, str(one.params.get("progressToken"))) == key]
        values = [_number(one.params.get("progress")) for one in same]
        if any(after <= before for before, after in pairwise(values)):
            raise Unmet(f"the progress went {', '.join(map(str, values))}")


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unmet(f"progress is {shorten(value)}, and should be a number")
    return value


@check(
    "g1-progress-unasked",
    Level.MUST_NOT,
    SECTION,
    "A caller that gave no token gets no progress.",
    "calls",
    ROLE,
)
async def progress_unasked(caller: Caller) -> None:
    mark = caller.connection.mark()
    begun = await caller.begin(ROLE)
    await caller.result(begun.id)
    await caller.stay_quiet()
    for report in _reports(caller, mark):
        # Late progress of earlier tasks is for other checks.
        if report.params.get("progressToken") not in GIVEN or related_task(report.params) == begun.id:
            raise Unmet(f"no progressToken came with the call, and {shorten(report.params)} was reported")


@check(
    "g1-progress-ends",
    Level.MUST,
    SECTION,
    "No progress comes when the task has ended.",
    "calls",
    ROLE,
)
async def progress_ends(caller: Caller) -> None:
    story = await _story(caller)  # what was under way came meanwhile
    await caller.stay_quiet()
    _expect_none([one for one in _reports(caller, story.end) if _owner(story, one) is not None], "completed")


@check(
    "g1-progress-cancelled",
    Level.MUST,
    SECTION,
    "No progress comes when the task was cancelled.",
    "calls",
    ROLE,
    "cancel",
)
async def progress_cancelled(caller: Caller) -> None:
    mark = caller.connection.mark()
    begun = await _begin(caller, THIRD)
    waiting = await caller.wait(begun.id)

    def seen() -> Message | None:
        ended: Message | None = {} if waiting.is_answered else None
        return next((report.message for report in _reports(caller, mark)), ended)

    if not await caller.connection.wait_for(seen, "no progress came"):
        raise Inapplicable("the server reports no progress of tasks, which it need not")
    if (await caller.cancel(begun.id)).error is not None:
        raise Inapplicable(f"the tool of the role {ROLE!r} ended before it could be cancelled: let it take longer")
    await caller.stay_quiet()  # what was under way comes meanwhile
    end = caller.connection.mark()
    # Until the work would have ended: who knows how often it reports.
    await asyncio.sleep(max(begun.at + caller.role(ROLE).takes - time.monotonic(), 0))
    await caller.stay_quiet()
    _expect_none(_reports(caller, end), "cancelled")


def _expect_none(reports: list[Came], status: str) -> None:
    if reports:
        raise Unmet(f"the task was {status}, and later {shorten(reports[0].params)} came")


CHECKS = (
    progress_token,
    progress_related_task,
    progress_increases,
    progress_unasked,
    progress_ends,
    progress_cancelled,
)
