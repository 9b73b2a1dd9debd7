"""Shorthand for common test setup, on any store and a manually advanced clock."""

import asyncio
import itertools
from collections.abc import Awaitable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from raincheck.core.change import Change, Creation, NewTask, create
from raincheck.core.commands import Command
from raincheck.core.decide import decide
from raincheck.core.owner import Owner, Scope
from raincheck.core.policies import Limits, Quota
from raincheck.core.records import HistoryEntry, InputKind, InputRequest, Journal, Step, Task, TaskId, Tool, View
from raincheck.core.values import Payload, encode
from raincheck.errors import RaincheckError
from raincheck.stores.base import Store
from raincheck.stores.change_feed import ChangeFeed
from raincheck.stores.commit import answer, apply, sweep
from raincheck.stores.requests import ClaimRequest, Page, PageCursor, TaskQuery
from raincheck.testing.clock import FakeClock

T = TypeVar("T")

NAMESPACE = "reports"
TOOL = Tool("build_report")
ALICE = Owner.token("https://issuer.example", "alice")
BOB = Owner.token("https://issuer.example", "bob")
EVERYTHING = Scope.everything()
LEASE = timedelta(seconds=30)

KEYED: dict[str, Any] = {"idempotency_key": "key", "request_digest": "digest"}
"""The fields of a keyed request."""
OTHER_REQUEST: dict[str, Any] = {"idempotency_key": "key", "request_digest": "another"}
"""The fields of another request with the same key."""


async def outcome_of(operation: Awaitable[T]) -> T | RaincheckError:
    """Return the result of an operation, or the error that it raised."""
    try:
        return await operation
    except RaincheckError as error:
        return error


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

    async def create_later(self, **fields: Any) -> Task:  # noqa: ANN401 - likewise
        """Create a task later than the existing ones."""
        self.clock.advance(1)
        return await self.create(**fields)

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

    async def page(self, query: TaskQuery, *, after: PageCursor | None = None, limit: int = 100) -> Page:
        return await self.store.list_tasks(query, now=self.clock.now(), after=after, limit=limit)

    async def ids(self, query: TaskQuery) -> list[TaskId]:
        """Return the ids of the first page of a list."""
        return [task.id for task in (await self.page(query)).tasks]

    async def history(self, task: Task) -> tuple[HistoryEntry, ...]:
        return await self.store.history(task.id, EVERYTHING, now=self.clock.now())

    async def view(self, task: Task) -> View:
        return await self.store.view(task.id, EVERYTHING, now=self.clock.now())

    async def journal(self, task: Task) -> Journal:
        return await self.store.journal(task.id, EVERYTHING, now=self.clock.now())

    async def sweep(self) -> tuple[Task, ...]:
        return await sweep(self.store, now=self.clock.now())

    async def answer(self, task: Task, answers: Mapping[str, Payload]) -> Task:
        return await answer(self.store, task.id, EVERYTHING, answers, actor="alice", now=self.clock.now())

    def decide(self, task: Task, command: Command) -> Change:
        """Return the change that the command makes of this task, to be committed."""
        change = decide(task, command, self.clock.now())
        assert change is not None, f"the command changes nothing: {command}"
        return change

    def jump_to_expiry(self, ended: Task) -> datetime:
        """Move the clock to the moment from which an ended task is no longer visible."""
        assert ended.expires_at is not None, f"the task has not ended: {ended}"
        return self.clock.jump_to(ended.expires_at)

    def step(self, name: str, occurrence: int = 0, result: object = None) -> Step:
        payload = encode(result)  # type: ignore[arg-type] # tests pass JSON
        return Step(name, occurrence, "fingerprint", payload, 1, self.clock.now())

    def input_request(self, key: str) -> InputRequest:
        request = encode({"message": "Publish it?"})
        return InputRequest(key, InputKind.ELICITATION, request, self.clock.now(), 1)
