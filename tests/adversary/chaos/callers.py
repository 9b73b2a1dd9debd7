"""The load: callers of several owners, who call tools, follow and answer their tasks, cancel them, and probe."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.adversary.chaos.evidence import TERMINAL, Exchange, Generation, Listing, Plan
from tests.adversary.chaos.plans import answer_to, draw_plan
from tests.adversary.chaos.wire import V2025, V2026, Wire, monotonic

KEY_META = "raincheck/idempotency-key"
OWNERS = ("alice", "bob", "carol")
LIVES = 4
"""Tasks that one owner follows at a time."""


@dataclass
class Records:
    """What all callers observed."""

    exchanges: list[Exchange] = field(default_factory=list[Exchange])
    plans: dict[str, Plan] = field(default_factory=dict[str, Plan])
    listings: list[Listing] = field(default_factory=list[Listing])
    counts: Counter[str] = field(default_factory=Counter[str])
    owners: dict[str, str] = field(default_factory=dict[str, str])
    """The owner of each task whose id a caller received."""

    ended: set[str] = field(default_factory=set[str])
    """Tasks that a caller has seen ended."""


class Caller:
    """One owner's callers, in both generations, of all servers."""

    def __init__(self, owner: str, http: httpx2.AsyncClient, urls: Sequence[str], records: Records) -> None:
        self.owner, self.records = owner, records
        self._wires = {
            generation: [Wire(http, url, owner, generation, records.exchanges) for url in urls]
            for generation in (V2025, V2026)
        }

    def wire(self, draw: random.Random, generation: Generation | None = None) -> Wire:
        """Return the connection to any server."""
        return draw.choice(self._wires[generation or draw.choice((V2025, V2026))])

    async def call(self, draw: random.Random, plan: Plan, key: str | None) -> str | None:
        """Call a tool, and return the id of its task. With a key, the call is repeated until it has an answer."""
        is_keyed = key is not None or plan.tool == "bill_once"
        for _ in range(8 if is_keyed else 1):
            copies = draw.choice((1, 1, 3)) if is_keyed else 1
            exchanges = await asyncio.gather(*(self._call(draw, plan, key) for _ in range(copies)))
            created = [each.created_id for each in exchanges if each.created_id is not None]
            for task_id in created:
                self.records.plans[task_id] = plan
                self.records.owners[task_id] = self.owner
            if created:
                return created[0]
            if any(each.result is not None for each in exchanges):
                break  # it has ended already, so that the repeated call is answered with its result
            await asyncio.sleep(0.3)
        return None

    async def _call(self, draw: random.Random, plan: Plan, key: str | None) -> Exchange:
        wire = self.wire(draw)
        params: dict[str, Any] = {"name": plan.tool, "arguments": plan.arguments}
        if wire.generation == V2025:
            params["task"] = {"ttl": 60_000}
        if key is not None:
            params["_meta"] = {KEY_META: key}
        return await wire.request("tools/call", params)

    async def look(self, draw: random.Random, task_id: str, generation: Generation | None = None) -> str | None:
        """Read a task, answer what it asks, and return its status; None without an answer."""
        exchange = await self.wire(draw, generation).request("tasks/get", {"taskId": task_id})
        if exchange.result is None:
            return None
        status: str = exchange.result["status"]
        if status in TERMINAL:
            self.records.ended.add(task_id)
        elif asked := exchange.result.get("inputRequests"):
            await self._update(draw, task_id, asked)
        return status

    async def _update(self, draw: random.Random, task_id: str, asked: Mapping[str, Any]) -> None:
        answers = {key: _accepted(request["params"]) for key, request in asked.items()}
        exchange = await self.wire(draw, V2026).request("tasks/update", {"taskId": task_id, "inputResponses": answers})
        if exchange.result is not None:
            self.records.counts["answers by tasks/update"] += len(answers)

    async def wait(self, draw: random.Random, task_id: str) -> None:
        """Wait for the result as callers of 2025-11-25 do, answer what is asked meanwhile, and lose patience."""

        def answer(params: Mapping[str, Any]) -> Mapping[str, Any] | None:
            if draw.random() < 0.1:
                return None
            self.records.counts["answers by elicitation"] += 1
            return _accepted(params)

        timeout = draw.choice((1.0, 4.0))
        await self.wire(draw, V2025).request("tasks/result", {"taskId": task_id}, answerer=answer, timeout=timeout)

    async def listen(self, draw: random.Random, task_ids: Sequence[str], *, is_probe: bool = False) -> None:
        """Subscribe to tasks for a while."""
        params = {"notifications": {"taskIds": list(task_ids)}}
        timeout = 0.5 if is_probe else draw.choice((1.0, 3.0))
        wire = self.wire(draw, V2026)
        await wire.request("subscriptions/listen", params, timeout=timeout, is_probe=is_probe)
        self.records.counts["subscriptions"] += 1

    async def cancel(self, draw: random.Random, task_id: str) -> None:
        await self.wire(draw).request("tasks/cancel", {"taskId": task_id})
        self.records.counts["cancels"] += 1

    async def probe(self, draw: random.Random, task_id: str) -> None:
        """Try everything with the id of another owner's task, or of none."""
        self.records.counts["probes"] += 1
        generation = draw.choice((V2025, V2026))
        methods = ("tasks/get", "tasks/result", "tasks/cancel")
        if generation == V2026:
            methods = ("tasks/get", "tasks/update", "tasks/cancel")
            await self.listen(draw, [task_id], is_probe=True)
        for method in methods:
            params: dict[str, Any] = {"taskId": task_id}
            if method == "tasks/update":
                params["inputResponses"] = {}
            await self.wire(draw, generation).request(method, params, is_probe=True, timeout=5.0)

    async def list_all(self, draw: random.Random) -> Sequence[Mapping[str, Any]] | None:
        """Read all pages of the list; None if one had no answer."""
        sent_at, tasks, params = monotonic(), list[Mapping[str, Any]](), dict[str, Any]()
        while True:
            exchange = await self.wire(draw, V2025).request("tasks/list", params)
            if exchange.result is None:
                return None
            tasks += exchange.result["tasks"]
            if "nextCursor" not in exchange.result:
                break
            params = {"cursor": exchange.result["nextCursor"]}
        self.records.listings.append(Listing(self.owner, sent_at, frozenset(task["taskId"] for task in tasks)))
        self.records.counts["lists"] += 1
        return tasks


class Life:
    """One caller's tasks, one after the other, each followed in another way."""

    def __init__(
        self, caller: Caller, strangers: Sequence[Caller], draw: random.Random, name: str, *, jumps: bool
    ) -> None:
        self.caller, self.strangers, self.draw, self.name, self.jumps = caller, strangers, draw, name, jumps
        self.known: list[str] = []

    async def run(self, ends_at: float) -> None:
        number = 0
        while monotonic() < ends_at:
            number += 1
            key = f"{self.name}-{number}"
            plan = draw_plan(self.draw, key, jumps=self.jumps)
            task_id = await self.caller.call(self.draw, plan, key if self.draw.random() < 0.5 else None)
            if task_id is not None:
                self.known.append(task_id)
                await self._follow(task_id, plan, min(ends_at, monotonic() + 12))
            await self._wander()

    async def _follow(self, task_id: str, plan: Plan, ends_at: float) -> None:
        if self.draw.random() < 0.1:
            return  # a caller that never comes back
        if self.draw.random() < (0.7 if plan.tool in ("endless", "spin") else 0.15):
            await asyncio.sleep(self.draw.choice((0.0, 0.1, 0.5, 1.5)))
            await self.caller.cancel(self.draw, task_id)
        while monotonic() < ends_at and task_id not in self.caller.records.ended:
            chosen = self.draw.random()
            if chosen < 0.15:
                await self.caller.wait(self.draw, task_id)
            elif chosen < 0.25:
                await self.caller.listen(self.draw, [task_id, *self.known[-3:]])
            else:
                await self.caller.look(self.draw, task_id)
            await asyncio.sleep(self.draw.choice((0.1, 0.2, 0.4)))

    async def _wander(self) -> None:
        """Read what has ended before, list, and try what is not allowed."""
        chosen = self.draw.random()
        if chosen < 0.4 and self.known:
            await self.caller.look(self.draw, self.draw.choice(self.known))
        elif chosen < 0.5:
            await self.caller.list_all(self.draw)
        elif chosen < 0.65 and self.known:
            stranger, task_id = self.draw.choice(self.strangers), self.draw.choice(self.known)
            await stranger.probe(self.draw, task_id)
            await stranger.probe(self.draw, _unknown(self.draw, task_id))


def _unknown(draw: random.Random, task_id: str) -> str:
    return task_id[:-8] + f"{draw.getrandbits(32):08x}"


def _accepted(params: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"action": "accept", "content": {"v": answer_to(params["message"])}}


@asynccontextmanager
async def callers(urls: Sequence[str], records: Records) -> AsyncGenerator[list[Caller]]:
    """Yield a caller for each owner."""
    limits = httpx2.Limits(max_connections=100)
    async with httpx2.AsyncClient(timeout=httpx2.Timeout(20, connect=2), limits=limits, trust_env=False) as http:
        yield [Caller(owner, http, urls, records) for owner in OWNERS]


async def put_load(callers: Sequence[Caller], draw: random.Random, seconds: float, *, jumps: bool) -> None:
    """Let every caller live several lives for some time."""
    lives = [
        Life(
            caller,
            [other for other in callers if other is not caller],
            random.Random(draw.getrandbits(32)),
            f"{caller.owner}{number}",
            jumps=jumps,
        )
        for caller in callers
        for number in range(LIVES)
    ]
    ends_at = monotonic() + seconds
    await asyncio.gather(*(life.run(ends_at) for life in lives))
