"""Callers of 2025-11-25 can't distinguish unknown tasks, expired tasks and tasks of other owners."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from raincheck import Owner, Retention
from raincheck.core.owner import Scope
from raincheck.core.records import TaskId
from raincheck.errors import TaskNotFound
from raincheck.server.sdk_compat import AnyContext
from raincheck.testing import FakeClock
from tests.server.test_owners import make_with_tokens
from tests.support.server.caller_v2025 import V2025Caller, connected, v2025_caller
from tests.support.server.caller_v2026 import Refused
from tests.support.server.example import QUICK, ExampleServer
from tests.support.server.tools import add_gated, text_of
from tests.support.server.transports_v2025 import v2025_http, v2025_serving
from tests.support.server.v2025.tools import ALICE, BOB, add_echo, ended, refusal

pytestmark = pytest.mark.anyio

METHODS = ["tasks/get", "tasks/result", "tasks/cancel"]
EACH_METHOD = pytest.mark.parametrize("method", METHODS)

UNKNOWN = "01a1e0f3b30b6bfe7de31c591256e0a2f1014a914ead"
"""A well-formed id that no task has."""


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    return "memory:" if request.param == "memory" else tmp_path / "tasks.db"


class ServerWithChosenOwner:
    """A server whose test chooses the owner of each request."""

    def __init__(self, store: str | Path, **options: Any) -> None:
        self.who = Owner.token("https://a.example", "alice")
        self.clock = FakeClock()
        # A lease that does not run out when a test moves the clock.
        settings = replace(QUICK, lease=86_400)
        self.server = ExampleServer(store, owner=self.owner_of, clock=self.clock, settings=settings, **options)
        self.gate = add_gated(self.server)
        add_echo(self.server, retention=Retention(keep=timedelta(seconds=50)))

    def owner_of(self, _: AnyContext) -> Owner:
        return self.who

    def be(self, name: str) -> None:
        self.who = Owner.token("https://a.example", name)


def seen_of(refused: Refused, task_id: str) -> tuple[Any, ...]:
    """All that a caller can see of a refusal, but for the id that it gave."""
    return refused.code, refused.message.replace(task_id, "ID"), refused.data


async def refusals_of(caller: V2025Caller, task_id: str) -> list[tuple[Any, ...]]:
    return [seen_of(await refusal(caller, method, {"taskId": task_id}), task_id) for method in METHODS]


@pytest.mark.requirement(
    "v2025-unknown-id-code", "v2025-others-rejected", "v2025-bound-to-context", "v2025-informative-errors"
)
async def test_unknown_expired_and_foreign_tasks_look_the_same(store: str | Path) -> None:
    door = ServerWithChosenOwner(store)
    async with v2025_caller(door.server) as caller:
        finished = await caller.start("say")
        live = await caller.start("gated")
        await door.server.tasks.engine.wait(finished, owner=door.who)
        door.be("mallory")
        unknown = await refusals_of(caller, UNKNOWN)
        assert unknown == [(-32602, unknown[0][1], None)] * 3
        assert "ID" in unknown[0][1]
        assert await refusals_of(caller, finished) == await refusals_of(caller, live) == unknown
        door.be("alice")
        assert text_of(await caller.result(finished)) == ""
        door.clock.advance(60)
        assert await refusals_of(caller, finished) == unknown
        assert (await caller.get(live))["status"] == "working", "nobody else has stopped it"


@pytest.mark.requirement("v2025-others-rejected", "v2025-bound-to-context")
@pytest.mark.parametrize("headers", [BOB, {}, {"authorization": "bearer alice"}], ids=["another", "none", "nearly"])
async def test_over_http_a_task_is_visible_only_with_the_same_credentials(headers: dict[str, str]) -> None:
    server = ExampleServer(works=False)
    add_gated(server)
    async with (
        v2025_serving(server.mcp) as serving,
        v2025_http(serving, **ALICE) as hers,
        v2025_http(serving, **ALICE) as hers_again,
        v2025_http(serving, **headers) as theirs,
        connected(hers) as alice,
        connected(hers_again) as alice_again,
        connected(theirs) as other,
    ):
        task_id = await alice.start("gated")
        assert await refusals_of(other, task_id) == await refusals_of(other, UNKNOWN)
        assert await alice_again.get(task_id) == await alice.get(task_id)
        assert (await alice_again.cancel(task_id))["status"] == "cancelled"


@pytest.mark.requirement("v2025-ids-unguessable")
async def test_anonymous_callers_reach_a_task_only_by_its_id() -> None:
    server = ExampleServer(works=False)
    add_gated(server)
    async with (
        v2025_serving(server.mcp) as serving,
        v2025_http(serving) as first,
        v2025_http(serving) as second,
        connected(first) as caller,
        connected(second) as other,
    ):
        task_id = await caller.start("gated")
        assert await other.get(task_id) == await caller.get(task_id)
        assert (await other.cancel(task_id))["status"] == "cancelled"


async def test_tasks_of_another_server_on_the_same_store_are_not_visible(tmp_path: Path) -> None:
    ours, theirs = (
        ExampleServer(tmp_path / "tasks.db", works=False),
        ExampleServer(tmp_path / "tasks.db", works=False, namespace="other"),
    )
    add_gated(ours)
    add_gated(theirs)
    async with v2025_caller(ours) as caller, v2025_caller(theirs) as other:
        task_id = await caller.start("gated")
        assert await refusals_of(other, task_id) == await refusals_of(other, UNKNOWN)
        assert (await other.page())["tasks"] == []


@EACH_METHOD
async def test_expiry_counts_for_every_method(method: str, store: str | Path) -> None:
    """Although the task is still in the store, because no sweep has run yet."""
    door = ServerWithChosenOwner(store)
    async with v2025_caller(door.server) as caller:
        task_id = await caller.start("say")
        await door.server.tasks.engine.wait(task_id, owner=door.who)
        ttl = (await caller.get(task_id))["ttl"] / 1_000
        door.clock.advance(ttl - 0.001)
        if method != "tasks/cancel":
            await caller.request(method, {"taskId": task_id})
        else:
            assert "already completed" in (await refusal(caller, method, {"taskId": task_id})).message
        assert len((await caller.page())["tasks"]) == 1
        door.clock.advance(0.001)
        expired = seen_of(await refusal(caller, method, {"taskId": task_id}), task_id)
        assert expired == seen_of(await refusal(caller, method, {"taskId": UNKNOWN}), UNKNOWN)
        assert (await caller.page())["tasks"] == []


@pytest.mark.requirement("v2025-expired-cleaned")
async def test_an_expired_task_is_soon_deleted() -> None:
    door = ServerWithChosenOwner("memory:")
    async with v2025_caller(door.server) as caller:
        task_id = await caller.start("say")
        await door.server.tasks.engine.wait(task_id, owner=door.who)
        store: Any = getattr(door.server.tasks.engine, "_deps").store  # noqa: B009 - it has no public name
        scope, early = Scope.everything(), door.clock.now()
        assert (await store.load(TaskId(task_id), scope, now=early)).id == task_id
        while await _is_stored(store, task_id, scope, early):
            door.clock.advance(60)
            await caller.ping()


async def _is_stored(store: Any, task_id: str, scope: Scope, now: Any) -> bool:
    try:
        await store.load(TaskId(task_id), scope, now=now)
    except TaskNotFound:
        return False
    return True


async def test_a_waiting_caller_gets_the_result_of_a_task_with_zero_retention() -> None:
    door = ServerWithChosenOwner("memory:")
    add_gated(door.server, "fleeting", retention=Retention(keep=timedelta(0))).open.set()
    gate = add_gated(door.server, "slow", retention=Retention(keep=timedelta(0)))
    async with v2025_caller(door.server) as caller:
        task_id = await caller.start("slow")
        waiting = await caller.wait(task_id)
        door.clock.advance(3_600)
        gate.open.set()
        assert text_of(await waiting.result()) == "through"
        assert (await refusal(caller, "tasks/result", {"taskId": task_id})).code == -32602


@pytest.mark.requirement("v2025-unknown-id-code", "v2025-informative-errors")
@pytest.mark.parametrize("params", [None, {}], ids=["no params", "empty params"])
@EACH_METHOD
async def test_a_request_without_a_task_id_is_rejected_with_a_remedy(
    method: str, params: dict[str, Any] | None
) -> None:
    async with v2025_caller(ExampleServer()) as caller:
        refused = await refusal(caller, method, params)
        assert refused.code == -32602
        assert f"{method} needs params.taskId" in refused.message


@pytest.mark.requirement("v2025-unknown-id-code")
@pytest.mark.parametrize("task_id", [None, 7, 1.5, True, [], ["x"], {}, {"taskId": "x"}], ids=repr)
@EACH_METHOD
async def test_a_task_id_that_is_no_string_is_refused(method: str, task_id: object) -> None:
    async with v2025_caller(ExampleServer()) as caller:
        refused = await refusal(caller, method, {"taskId": task_id})
        assert refused.code == -32602
        assert "taskId, a string" in refused.message


ODD = [
    "",
    " ",
    "a\0b",
    "ü",
    "\U0001f4a5",
    "'; drop table tasks; --",
    "../etc",
    "x" * 200,
    "x" * 201,
    "x" * 100_000,
    "%",
]


@pytest.mark.requirement("v2025-unknown-id-code")
@EACH_METHOD
async def test_odd_ids_are_unknown_tasks(method: str, store: str | Path) -> None:
    door = ServerWithChosenOwner(store)
    async with v2025_caller(door.server) as caller:
        task_id = await caller.start("gated")
        for odd in [*ODD, task_id.upper(), f" {task_id}", f"{task_id} ", task_id[:-1], f"{task_id}\0"]:
            refused = await refusal(caller, method, {"taskId": odd})
            assert refused.code == -32602, odd
            assert len(refused.message) < 300, "what was sent is not sent back at length"
        assert (await caller.get(task_id))["status"] == "working"


async def test_lookups_of_unknown_tasks_use_no_resources() -> None:
    server = ExampleServer()
    add_echo(server)
    async with v2025_caller(server) as caller:
        before = len(asyncio.all_tasks())
        for number in range(100):
            await refusal(caller, "tasks/result", {"taskId": f"unknown-{number}"})
        assert len(asyncio.all_tasks()) <= before
        task_id = await caller.start("say")
        assert (await ended(server, task_id)).task.status == "completed"


@asynccontextmanager
async def with_tokens() -> AsyncGenerator[tuple[V2025Caller, V2025Caller, V2025Caller]]:
    server = make_with_tokens()
    async with (
        v2025_serving(server.mcp) as serving,
        v2025_http(serving, authorization="Bearer alice") as one,
        v2025_http(serving, authorization="Bearer alice-on-her-phone") as two,
        v2025_http(serving, authorization="Bearer mallory") as three,
        connected(one) as alice,
        connected(two) as phone,
        connected(three) as mallory,
    ):
        yield alice, phone, mallory


@pytest.mark.requirement("v2025-bound-to-context", "v2025-others-rejected", "v2025-list-of-own")
async def test_with_verified_tokens_a_task_is_its_subjects_on_all_their_devices() -> None:
    async with with_tokens() as (alice, phone, mallory):
        task_id = await alice.start("quick")
        assert text_of(await phone.result(task_id)) == "done"
        assert await refusals_of(mallory, task_id) == await refusals_of(mallory, UNKNOWN)
        assert [one["taskId"] for one in (await phone.page())["tasks"]] == [task_id]
        assert (await mallory.page())["tasks"] == []
