"""The attack: rounds of load and faults, each on its own site, each verified."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

from tests.adversary.chaos.callers import Caller, Records, callers, put_load
from tests.adversary.chaos.evidence import TERMINAL, Evidence, read_effects
from tests.adversary.chaos.faults import disturb
from tests.adversary.chaos.site import FAKETIME, TOPOLOGIES, Site, Topology, running_site
from tests.adversary.chaos.verifier import violations
from tests.adversary.chaos.wire import V2026, monotonic
from tests.adversary.outcome import Outcome

ROUND_SECONDS = 30.0
"""Of load, in a round of a long attack."""

OVERHEAD_SECONDS = 12.0
"""Of a round, on a quiet machine, before the load and after it."""

STILL_SECONDS = 45.0
"""No task ends and no step is recorded for so long: the tasks that are live then are stuck."""

SETTLE_SECONDS = 240.0
"""A bound for all tasks together, which a busy machine reaches only if something is wrong."""

QUIET_SECONDS = 2.5
"""No body does anything for so long: none will."""


async def run(draw: random.Random, seconds: float) -> Outcome:
    """Attack one topology after the other, for about this long."""
    outcome = Outcome()
    rounds = max(1, round(seconds / (ROUND_SECONDS + OVERHEAD_SECONDS)))
    load_seconds = min(ROUND_SECONDS, max(3.0, seconds / rounds - OVERHEAD_SECONDS))
    topologies = draw.sample(TOPOLOGIES, len(TOPOLOGIES))
    for number in range(rounds):
        seed = draw.getrandbits(32)
        await attack_once(outcome, topologies[number % len(topologies)], seed, load_seconds)
    return outcome


async def attack_once(outcome: Outcome, topology: Topology, seed: int, seconds: float) -> None:
    """Run one round, and add what it counted and found."""
    draw = random.Random(seed)
    fakes_time = draw.random() < 0.35 and FAKETIME is not None
    records = Records()
    async with running_site(topology, fakes_time=fakes_time) as site:
        async with callers([server.url for server in site.servers], records) as owners:
            load = put_load(owners, draw, seconds, jumps=fakes_time)
            await asyncio.gather(load, disturb(site, draw, seconds))
            loose_ends = await _settle(site, owners, draw)
            await _read_everything(owners, draw)
        exported = await site.export()
        for each in site.programs:
            await each.terminate()
        loose_ends += [complaint for each in site.programs for complaint in each.complaints]
        evidence = Evidence(
            records.exchanges,
            read_effects(site.diary),
            exported,
            records.plans,
            records.listings,
            monotonic(),
            loose_ends,
        )
    where = f"{topology.name}, round {seed}{', with clock jumps' if fakes_time else ''}"
    outcome.violations += [f"{where}: {violation}" for violation in violations(evidence)]
    outcome.counts["rounds"] += 1
    if FAKETIME is None:
        outcome.counts["rounds without clock jumps, since libfaketime is not installed,"] += 1
    outcome.counts.update(site.counts + records.counts + _counts(evidence))


async def _settle(site: Site, owners: Sequence[Caller], draw: random.Random) -> list[str]:
    """Answer what is asked until all tasks have ended and nothing happens any more. Return what prevents that."""
    started_at = changed_at = monotonic()
    seen: object = None
    live: list[str] = []
    while monotonic() - changed_at < STILL_SECONDS and monotonic() - started_at < SETTLE_SECONDS:
        live = await _live_tasks(owners, draw)
        if not live:
            live = [task_id for task_id, task in (await site.export()).items() if task["status"] not in TERMINAL]
            if not live:
                return await _wait_until_quiet(site)
        recorded = sum(effect.event in ("after", "answered") for effect in read_effects(site.diary))
        now = (tuple(live), recorded)
        if now != seen:
            seen, changed_at = now, monotonic()
        await asyncio.sleep(0.3)
    waited = monotonic() - started_at
    return [f"{task_id} is still live {waited:.0f} s after the faults ended" for task_id in live]


async def _live_tasks(owners: Sequence[Caller], draw: random.Random) -> list[str]:
    live: list[str] = []
    for owner in owners:
        listed = await owner.list_all(draw)
        if listed is None:
            live.append(f"(the list of {owner.owner})")
        for task in listed or ():
            if task["status"] not in TERMINAL:
                await owner.look(draw, task["taskId"], V2026)
                live.append(task["taskId"])
    return live


async def _wait_until_quiet(site: Site) -> list[str]:
    """Wait until no body does anything. A process that was stopped needs a moment to notice what it has lost."""
    started_at = changed_at = monotonic()
    size = site.diary.stat().st_size
    while monotonic() - changed_at < QUIET_SECONDS:
        await asyncio.sleep(0.2)
        if (now := site.diary.stat().st_size) != size:
            size, changed_at = now, monotonic()
        if monotonic() - started_at > STILL_SECONDS:
            return [f"bodies still work {STILL_SECONDS:.0f} s after the last task ended"]
    return []


async def _read_everything(owners: Sequence[Caller], draw: random.Random) -> None:
    """Read every task once more, in either generation."""
    for owner in owners:
        for task_id, its_owner in owner.records.owners.items():
            if its_owner == owner.owner:
                await owner.look(draw, task_id)


def _counts(evidence: Evidence) -> Counter[str]:
    entries = [entry for task in evidence.exported.values() for entry in task["history"]]
    counts = {
        "tasks": len(evidence.exported),
        "requests": len(evidence.exchanges),
        "requests without an answer": sum(each.received_at is None for each in evidence.exchanges),
        "steps run": sum(effect.event == "run" for effect in evidence.effects),
        "takeovers": sum(entry["event"] == "interrupt" for entry in entries),
        "releases": sum(entry["event"] == "release" for entry in entries),
        "history entries": len(entries),
    }
    return Counter(counts)
