"""Checks of times: when a task was created and last updated, and how long it is retained."""

import asyncio
import time
from datetime import datetime

from raincheck.conformance.caller import ConformanceClient
from raincheck.conformance.check import check
from raincheck.conformance.messages import Message, shorten
from raincheck.conformance.outcome import NotApplicable, RequirementLevel, RequirementNotMet
from raincheck.conformance.shapes import INVALID_PARAMS, expect_error, expect_result, expect_task, is_rfc_3339, task_in

TIMES = ("createdAt", "lastUpdatedAt")
TIME_TOLERANCE = 1.0
"""Seconds by which times from different sources may differ."""

SHORT = 500
MAX_WAITED_TTL = 3_000
"""The longest ttl, in milliseconds, that a check waits for."""

HUGE_TTL = 1_000 * 365 * 86_400 * 1_000
"""A thousand years."""


async def _reported_tasks(caller: ConformanceClient) -> dict[str, Message]:
    begun = await caller.start_task("quick")
    return {"the created task": begun.task, "tasks/get": expect_result(await caller.get_task(begun.id))}


@check(
    "g1-times-iso-8601",
    RequirementLevel.MUST,
    "TTL and Resource Management",
    "createdAt and lastUpdatedAt are there and in ISO 8601 wherever a task is told of.",
    "calls",
    "quick",
)
async def times_iso_8601(caller: ConformanceClient) -> None:
    for where, task in (await _reported_tasks(caller)).items():
        expect_task(task, where, *TIMES)


@check(
    "g1-times-rfc-3339",
    RequirementLevel.SHOULD,
    "TTL and Resource Management",
    "The times have an offset from UTC, as the RFC 3339 that the specification links to wants it.",
    "calls",
    "quick",
)
async def times_rfc_3339(caller: ConformanceClient) -> None:
    for where, task in (await _reported_tasks(caller)).items():
        for field in TIMES:
            if isinstance(task.get(field), str) and not is_rfc_3339(task[field]):
                raise RequirementNotMet(f"{where}: {field} is {task[field]!r}, which is not a time of RFC 3339")


@check(
    "g1-times-created-stays",
    RequirementLevel.MUST,
    "TTL and Resource Management",
    "createdAt says when the task was created: it does not change, and lastUpdatedAt is not before it.",
    "calls",
    "quick",
)
async def times_created_stays(caller: ConformanceClient) -> None:
    begun = await caller.start_task("quick")
    ended = await caller.wait_for_end(begun.id)
    created, still, updated = (
        _read_time(one) for one in (begun.task.get("createdAt"), ended.get("createdAt"), ended.get("lastUpdatedAt"))
    )
    if created is None or still is None or updated is None:
        raise NotApplicable("a time can't be read: see g1-times-iso-8601")
    if abs(created - still) > TIME_TOLERANCE:
        raise RequirementNotMet(f"createdAt was {begun.task['createdAt']!r}, and then {ended['createdAt']!r}")
    if still - updated > TIME_TOLERANCE:
        raise RequirementNotMet(f"lastUpdatedAt {ended['lastUpdatedAt']!r} is before createdAt {ended['createdAt']!r}")


def _read_time(value: object) -> float | None:
    try:
        return datetime.fromisoformat(str(value).upper()).timestamp()
    except ValueError:
        return None


@check(
    "g1-times-updated-honest",
    RequirementLevel.SHOULD,
    "TTL and Resource Management",
    "lastUpdatedAt does not move while nothing happens to the task.",
    "calls",
    "quick",
)
async def times_updated_honest(caller: ConformanceClient) -> None:
    begun = await caller.start_task("quick")
    before = (await caller.wait_for_end(begun.id)).get("lastUpdatedAt")
    await asyncio.sleep(caller.timings.poll_interval)
    after = expect_result(await caller.get_task(begun.id)).get("lastUpdatedAt")
    if after != before:
        raise RequirementNotMet(
            f"lastUpdatedAt of a task that had ended went from {before!r} to {after!r} between two looks"
        )


@check(
    "g1-ttl-told",
    RequirementLevel.MUST,
    "TTL and Resource Management",
    "The ttl that holds is told when the task is created and by tasks/get: an integer, or null for ever.",
    "calls",
    "quick",
)
async def ttl_told(caller: ConformanceClient) -> None:
    for where, task in (await _reported_tasks(caller)).items():
        expect_task(task, where, "ttl")
    begun = await caller.start_task("quick", task={})
    expect_task(begun.task, "the task that was created without a wish for a ttl", "ttl")


@check(
    "g1-ttl-bad-32602",
    RequirementLevel.SHOULD,
    "Task Parameters",
    "A ttl that is not a number is refused: -32602.",
    "calls",
    "quick",
)
async def ttl_bad(caller: ConformanceClient) -> None:
    for wrong in ("a while", {"seconds": 1}):
        expect_error(await caller.call("quick", task={"ttl": wrong}), INVALID_PARAMS, f"the ttl {shorten(wrong)}")


@check(
    "g1-ttl-limited",
    RequirementLevel.SHOULD,
    "Resource Management",
    "There is a longest ttl: who asks for a thousand years gets less.",
    "calls",
    "quick",
)
async def ttl_limited(caller: ConformanceClient) -> None:
    reply = await caller.call("quick", task={"ttl": HUGE_TTL})
    if reply.error is not None:
        return
    ttl = task_in(expect_result(reply)).get("ttl", 0)
    if ttl is None or ttl >= HUGE_TTL:
        raise RequirementNotMet(f"the ttl {HUGE_TTL:,} was asked for, and {shorten(ttl)} was given")


@check(
    "g1-ttl-kept",
    RequirementLevel.MUST,
    "TTL and Resource Management",
    "A task and its result are there until its ttl is over.",
    "calls",
    "quick",
)
async def ttl_kept(caller: ConformanceClient) -> None:
    begun = await caller.start_task("quick", task={"ttl": 60_000})
    ttl = (await caller.wait_for_end(begun.id)).get("ttl")
    if isinstance(ttl, int) and ttl < MAX_WAITED_TTL:
        raise NotApplicable(f"the ttl 60000 was asked for, and {ttl} was given: too little to look at it in peace")
    expect_result(await caller.get_result(begun.id))
    await caller.wait_quiet_period()
    expect_result(await caller.get_task(begun.id))
    expect_result(await caller.get_result(begun.id))


@check(
    "g1-ttl-over",
    RequirementLevel.SHOULD,
    "Resource Management",
    "A task whose ttl is over is soon gone, and then unknown: -32602.",
    "calls",
    "quick",
)
async def ttl_over(caller: ConformanceClient) -> None:
    begun = await caller.start_task("quick", task={"ttl": SHORT})
    task = await caller.wait_for_end(begun.id)
    ttl = task.get("ttl")
    if not isinstance(ttl, int) or ttl > MAX_WAITED_TTL:
        raise NotApplicable(f"the ttl {SHORT} was asked for, and {shorten(ttl)} was given: too long to wait for")
    # Some servers count from the end of the task, which the freedom to override the ttl allows.
    deadline = time.monotonic() + 2 * ttl / 1_000 + caller.timings.timeout / 2
    while (reply := await caller.get_task(begun.id)).error is None:
        if time.monotonic() > deadline:
            raise RequirementNotMet(
                f"a task with the ttl {ttl} is there {time.monotonic() - begun.started_at:.1f} s after it was created"
            )
        await asyncio.sleep(caller.timings.poll_interval)
    expect_error(reply, INVALID_PARAMS, "tasks/get of a task that has expired")


CHECKS = (
    times_iso_8601,
    times_rfc_3339,
    times_created_stays,
    times_updated_honest,
    ttl_told,
    ttl_bad,
    ttl_limited,
    ttl_kept,
    ttl_over,
)
