"""Checks of times: when a task was created and last updated, and how long it is retained."""

import asyncio
import time
from datetime import datetime

from raincheck.conformance.caller import ConformanceClient
from raincheck.conformance.check import MUST, SHOULD, Topic
from raincheck.conformance.connection import Message, shorten
from raincheck.conformance.requirements import (
    INVALID_PARAMS,
    NotApplicable,
    RequirementNotMet,
    expect,
    expect_error,
    expect_result,
    expect_task,
    is_rfc_3339,
    task_in,
)

topic = Topic("Times and retention", "TTL and Resource Management", "calls", "quick")

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


@topic.check(MUST, "v2025-times-iso-8601")
async def times_iso_8601(caller: ConformanceClient) -> None:
    """Every reported task has createdAt and lastUpdatedAt, in ISO 8601."""
    for where, task in (await _reported_tasks(caller)).items():
        expect_task(task, where, *TIMES)


@topic.check(SHOULD, "v2025-times-rfc-3339")
async def times_rfc_3339(caller: ConformanceClient) -> None:
    """The times have an offset from UTC, as RFC 3339 requires, which the specification links to."""
    for where, task in (await _reported_tasks(caller)).items():
        for field in TIMES:
            if isinstance(task.get(field), str) and not is_rfc_3339(task[field]):
                raise RequirementNotMet(f"{where}: {field} is {task[field]!r}, which is not an RFC 3339 time")


@topic.check(
    MUST,
    "v2025-times-created-stays",
    requirement="createdAt is when the task was created: it does not change, and lastUpdatedAt is not before it.",
)
async def times_created_stays(caller: ConformanceClient) -> None:
    new_task, ended = await caller.run_task("quick")
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


@topic.check(
    SHOULD, "v2025-times-updated-stays", requirement="lastUpdatedAt does not change while the task does not change."
)
async def times_updated_stays(caller: ConformanceClient) -> None:
    new_task, ended = await caller.run_task("quick")
    before = ended.get("lastUpdatedAt")
    await asyncio.sleep(caller.timings.poll_interval)
    after = expect_result(await caller.get_task(new_task.id)).get("lastUpdatedAt")
    expect(
        after == before,
        f"lastUpdatedAt of a task that had ended changed from {before!r} to {after!r} between two reads",
    )


@topic.check(MUST, "v2025-ttl-reported")
async def ttl_reported(caller: ConformanceClient) -> None:
    """The effective ttl is reported when the task is created and by tasks/get: an integer, or null for no limit."""
    for where, task in (await _reported_tasks(caller)).items():
        expect_task(task, where, "ttl")
    new_task = await caller.start_task("quick", task={})
    expect_task(new_task.task, "the task that was created without a requested ttl", "ttl")


@topic.check(SHOULD, "v2025-ttl-bad-32602", section="Task Parameters")
async def ttl_bad(caller: ConformanceClient) -> None:
    """A ttl that is not a number is rejected: -32602."""
    for invalid in ("a while", {"seconds": 1}):
        reply = await caller.call("quick", task={"ttl": invalid})
        expect_error(reply, INVALID_PARAMS, f"a call with the ttl {shorten(invalid)}")


@topic.check(SHOULD, "v2025-ttl-limited", section="Resource Management")
async def ttl_limited(caller: ConformanceClient) -> None:
    """The ttl has a maximum: a client that requests a thousand years gets less."""
    reply = await caller.call("quick", task={"ttl": HUGE_TTL})
    if reply.error is not None:
        return
    ttl = task_in(expect_result(reply)).get("ttl", 0)
    if ttl is None or ttl >= HUGE_TTL:
        raise RequirementNotMet(f"the requested ttl was {HUGE_TTL:,}, and the server granted {shorten(ttl)}")


@topic.check(MUST, "v2025-ttl-honored")
async def ttl_honored(caller: ConformanceClient) -> None:
    """A task and its result are available until its ttl expires."""
    new_task, ended = await caller.run_task("quick", task={"ttl": 60_000})
    ttl = ended.get("ttl")
    if isinstance(ttl, int) and ttl < MAX_WAITED_TTL:
        raise NotApplicable(f"the requested ttl was 60000, and the server granted {ttl}: too short to test")
    expect_result(await caller.get_result(new_task.id))
    await caller.wait_quiet_period()
    expect_result(await caller.get_task(new_task.id))
    expect_result(await caller.get_result(new_task.id))


@topic.check(SHOULD, "v2025-ttl-expired", section="Resource Management")
async def ttl_expired(caller: ConformanceClient) -> None:
    """A task is deleted soon after its ttl expires, and is then unknown: -32602."""
    new_task, ended = await caller.run_task("quick", task={"ttl": SHORT_TTL})
    ttl = ended.get("ttl")
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
