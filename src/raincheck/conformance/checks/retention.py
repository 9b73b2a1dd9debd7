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

SHORT_TTL = 500
MAX_WAITED_TTL = 3_000
"""The longest ttl, in milliseconds, that a check waits for."""

HUGE_TTL = 1_000 * 365 * 86_400 * 1_000
"""A thousand years."""


async def _reported_tasks(caller: ConformanceClient) -> dict[str, Message]:
    new_task = await caller.start_task("quick")
    return {"the created task": new_task.task, "tasks/get": expect_result(await caller.get_task(new_task.id))}


@check(
    "v2025-times-iso-8601",
    RequirementLevel.MUST,
    "TTL and Resource Management",
    "Every reported task has createdAt and lastUpdatedAt, in ISO 8601.",
    "calls",
    "quick",
)
async def times_iso_8601(caller: ConformanceClient) -> None:
    for where, task in (await _reported_tasks(caller)).items():
        expect_task(task, where, *TIMES)


@check(
    "v2025-times-rfc-3339",
    RequirementLevel.SHOULD,
    "TTL and Resource Management",
    "The times have an offset from UTC, as RFC 3339 requires, which the specification links to.",
    "calls",
    "quick",
)
async def times_rfc_3339(caller: ConformanceClient) -> None:
    for where, task in (await _reported_tasks(caller)).items():
        for field in TIMES:
            if isinstance(task.get(field), str) and not is_rfc_3339(task[field]):
                raise RequirementNotMet(f"{where}: {field} is {task[field]!r}, which is not an RFC 3339 time")


@check(
    "v2025-times-created-stays",
    RequirementLevel.MUST,
    "TTL and Resource Management",
    "createdAt is when the task was created: it does not change, and lastUpdatedAt is not before it.",
    "calls",
    "quick",
)
async def times_created_stays(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("quick")
    ended = await caller.wait_for_end(new_task.id)
    created, created_later, updated = (
        _read_time(value)
        for value in (new_task.task.get("createdAt"), ended.get("createdAt"), ended.get("lastUpdatedAt"))
    )
    if created is None or created_later is None or updated is None:
        raise NotApplicable("a time can't be read: see v2025-times-iso-8601")
    if abs(created - created_later) > TIME_TOLERANCE:
        raise RequirementNotMet(f"createdAt changed from {new_task.task['createdAt']!r} to {ended['createdAt']!r}")
    if created_later - updated > TIME_TOLERANCE:
        raise RequirementNotMet(f"lastUpdatedAt {ended['lastUpdatedAt']!r} is before createdAt {ended['createdAt']!r}")


def _read_time(value: object) -> float | None:
    try:
        return datetime.fromisoformat(str(value).upper()).timestamp()
    except ValueError:
        return None


@check(
    "v2025-times-updated-stays",
    RequirementLevel.SHOULD,
    "TTL and Resource Management",
    "lastUpdatedAt does not change while the task does not change.",
    "calls",
    "quick",
)
async def times_updated_stays(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("quick")
    before = (await caller.wait_for_end(new_task.id)).get("lastUpdatedAt")
    await asyncio.sleep(caller.timings.poll_interval)
    after = expect_result(await caller.get_task(new_task.id)).get("lastUpdatedAt")
    if after != before:
        raise RequirementNotMet(
            f"lastUpdatedAt of a task that had ended changed from {before!r} to {after!r} between two reads"
        )


@check(
    "v2025-ttl-reported",
    RequirementLevel.MUST,
    "TTL and Resource Management",
    "The effective ttl is reported when the task is created and by tasks/get: an integer, or null for no limit.",
    "calls",
    "quick",
)
async def ttl_reported(caller: ConformanceClient) -> None:
    for where, task in (await _reported_tasks(caller)).items():
        expect_task(task, where, "ttl")
    new_task = await caller.start_task("quick", task={})
    expect_task(new_task.task, "the task that was created without a requested ttl", "ttl")


@check(
    "v2025-ttl-bad-32602",
    RequirementLevel.SHOULD,
    "Task Parameters",
    "A ttl that is not a number is rejected: -32602.",
    "calls",
    "quick",
)
async def ttl_bad(caller: ConformanceClient) -> None:
    for invalid in ("a while", {"seconds": 1}):
        reply = await caller.call("quick", task={"ttl": invalid})
        expect_error(reply, INVALID_PARAMS, f"a call with the ttl {shorten(invalid)}")


@check(
    "v2025-ttl-limited",
    RequirementLevel.SHOULD,
    "Resource Management",
    "The ttl has a maximum: a client that requests a thousand years gets less.",
    "calls",
    "quick",
)
async def ttl_limited(caller: ConformanceClient) -> None:
    reply = await caller.call("quick", task={"ttl": HUGE_TTL})
    if reply.error is not None:
        return
    ttl = task_in(expect_result(reply)).get("ttl", 0)
    if ttl is None or ttl >= HUGE_TTL:
        raise RequirementNotMet(f"the requested ttl was {HUGE_TTL:,}, and the server granted {shorten(ttl)}")


@check(
    "v2025-ttl-honored",
    RequirementLevel.MUST,
    "TTL and Resource Management",
    "A task and its result are available until its ttl expires.",
    "calls",
    "quick",
)
async def ttl_honored(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("quick", task={"ttl": 60_000})
    ttl = (await caller.wait_for_end(new_task.id)).get("ttl")
    if isinstance(ttl, int) and ttl < MAX_WAITED_TTL:
        raise NotApplicable(f"the requested ttl was 60000, and the server granted {ttl}: too short to test")
    expect_result(await caller.get_result(new_task.id))
    await caller.wait_quiet_period()
    expect_result(await caller.get_task(new_task.id))
    expect_result(await caller.get_result(new_task.id))


@check(
    "v2025-ttl-expired",
    RequirementLevel.SHOULD,
    "Resource Management",
    "A task is deleted soon after its ttl expires, and is then unknown: -32602.",
    "calls",
    "quick",
)
async def ttl_expired(caller: ConformanceClient) -> None:
    new_task = await caller.start_task("quick", task={"ttl": SHORT_TTL})
    task = await caller.wait_for_end(new_task.id)
    ttl = task.get("ttl")
    if not isinstance(ttl, int) or ttl > MAX_WAITED_TTL:
        raise NotApplicable(
            f"the requested ttl was {SHORT_TTL}, and the server granted {shorten(ttl)}: too long to wait for"
        )
    # Some servers count from the end of the task, which the freedom to override the ttl allows.
    deadline = time.monotonic() + 2 * ttl / 1_000 + caller.timings.timeout / 2
    while (reply := await caller.get_task(new_task.id)).error is None:
        if time.monotonic() > deadline:
            seconds = time.monotonic() - new_task.started_at
            raise RequirementNotMet(f"a task with the ttl {ttl} still exists {seconds:.1f} s after it was created")
        await asyncio.sleep(caller.timings.poll_interval)
    expect_error(reply, INVALID_PARAMS, "tasks/get of a task that has expired")


CHECKS = (
    times_iso_8601,
    times_rfc_3339,
    times_created_stays,
    times_updated_stays,
    ttl_reported,
    ttl_bad,
    ttl_limited,
    ttl_honored,
    ttl_expired,
)
