"""Shorthand for common test setup, on any store and a manually advanced clock."""

import asyncio
import itertools
from datetime import timedelta
from typing import Any

from raincheck.core.change import Creation
from raincheck.core.commands import Command
from raincheck.core.create import NewTask, create
from raincheck.core.limits import Limits, Quota
from raincheck.core.owner import Owner, Scope
from raincheck.core.payload import encode
from raincheck.core.records import HistoryEntry, InputKind, InputRequest, Step, Task, TaskId, Tool
from raincheck.stores.base import Store
from raincheck.stores.change_feed import ChangeFeed
from raincheck.stores.commit import apply
from raincheck.stores.requests import ClaimRequest
from raincheck.testing.clock import FakeClock

NAMESPACE = "reports"
TOOL = Tool("build_report")
ALICE = Owner.token("https://issuer.example", "alice")
BOB = Owner.token("https://issuer.example", "bob")
EVERYTHING = Scope.everything()
LEASE = timedelta(seconds=30)


async def wait_for_hint(feed: ChangeFeed, task_id: TaskId) -> set[TaskId]:
    """Listen until the feed names the task, and return all task ids that it named."""
    changed: set[TaskId] = set()
    async with asyncio.timeout(10):
        async for hint in feed:
            changed |= hint
            if task_id in hint:
                return changed
    raise AssertionError(f"the feed ended before it reported the task {task_id!r}")


class StoreHarness:
    """A store and a clock. Task ids count up, so that every run of a test is the same."""

    def __init__(self, store: Store, clock: FakeClock) -> None:
        self.store = store
        self.clock = clock
        self._numbers = itertools.count(1)

    def new_task(self, **fields: Any) -> NewTask:  # noqa: ANN401 - the fields of NewTask
        """Return the request for a task: Alice's report, unless `fields` override it."""
        base: dict[str, Any] = {
            "id": TaskId(f"task-{next(self._numbers):04}"),
            "namespace": NAMESPACE,
            "owner": ALICE,
            "tool": TOOL,
            "arguments": encode({"year": 2026}),
        }
        return NewTask(**(base | fields))

    def creation(self, **fields: Any) -> Creation:  # noqa: ANN401 - likewise
        return create(self.new_task(**fields), self.clock.now(), Limits())

    async def create(
        self,
        *,
        quota: Quota = Quota(),  # noqa: B008 - frozen
        claim: ClaimRequest | None = None,
        **fields: Any,  # noqa: ANN401 - likewise
    ) -> Task:
        return await self.store.create(self.creation(**fields), quota=quota, now=self.clock.now(), claim=claim)

    async def claim(
        self, *, limit: int = 1, tools: frozenset[Tool] = frozenset({TOOL}), holder: str = "worker-1"
    ) -> tuple[Task, ...]:
        request = ClaimRequest(NAMESPACE, tools, holder, LEASE, limit)
        return await self.store.claim(request, now=self.clock.now())

    async def create_running(self, **fields: Any) -> Task:  # noqa: ANN401 - likewise
        """Create a task and claim it, so that its first attempt runs."""
        task = await self.create(**fields)
        claimed = await self.claim(limit=1_000, tools=frozenset({task.tool}))
        return next(running for running in claimed if running.id == task.id)

    async def apply(self, task: Task, command: Command) -> Task:
        """Apply the command to the stored task and return the result."""
        return await apply(self.store, task.id, EVERYTHING, command, now=self.clock.now())

    async def load(self, task: Task, scope: Scope = EVERYTHING) -> Task:
        return await self.store.load(task.id, scope, now=self.clock.now())

    async def history(self, task: Task) -> tuple[HistoryEntry, ...]:
        return await self.store.history(task.id, EVERYTHING, now=self.clock.now())

    def step(self, name: str, occurrence: int = 0, result: object = None) -> Step:
        payload = encode(result)  # type: ignore[arg-type] # tests pass JSON
        return Step(name, occurrence, "fingerprint", payload, 1, self.clock.now())

    def input_request(self, key: str) -> InputRequest:
        request = encode({"message": "Publish it?"})
        return InputRequest(key, InputKind.ELICITATION, request, self.clock.now(), 1)
