"""`tasks/list` of 2025-11-25: a caller's own tasks, newest first, with cursors that can't be forged."""

# pyright: reportUnusedFunction=false

import asyncio
import base64
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from raincheck import Owner, Retention
from raincheck.core.owner import OwnerKind
from raincheck.server.sdk_compat import AnyContext
from raincheck.testing import FakeClock
from tests.server.test_quotas import allowing
from tests.support.server.caller_v2025 import V2025Caller, connected, v2025_caller
from tests.support.server.caller_v2026 import Caller
from tests.support.server.example import ExampleServer
from tests.support.server.tools import add_gated
from tests.support.server.transports import in_memory
from tests.support.server.transports_v2025 import v2025_http, v2025_serving
from tests.support.server.v2025.tools import ALICE, BOB, ON_V2025_TRANSPORTS, add_echo, ended, refusal

pytestmark = pytest.mark.anyio

PAGE = 100


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    return "memory:" if request.param == "memory" else tmp_path / "tasks.db"


async def make_many(server: ExampleServer, count: int, owner: Owner | None = None) -> list[str]:
    """Create this many tasks that no worker runs, oldest first."""
    submit = server.tasks.engine.submit
    made = [await submit("gated", owner=owner or Owner.local()) for _ in range(count)]
    return [task.id for task in made]


async def all_of(caller: V2025Caller) -> list[str]:
    """The ids of all tasks, page by page."""
    ids: list[str] = []
    page = await caller.page()
    while True:
        ids += [task["taskId"] for task in page["tasks"]]
        assert len(ids) < 1_000, "it goes round in circles"
        if "nextCursor" not in page:
            return ids
        page = await caller.page(page["nextCursor"])


@pytest.mark.requirement("v2025-list-complete", "v2025-list-of-own")
@ON_V2025_TRANSPORTS
async def test_the_list_is_empty_without_tasks_and_otherwise_newest_first(way: str) -> None:
    server = ExampleServer(works=False)
    add_gated(server)
    async with v2025_caller(server, way, headers=ALICE) as caller:
        assert await caller.page() == {"tasks": []}
        made = [await caller.create("gated") for _ in range(5)]
        listed = await caller.page()
        assert listed == {"tasks": made[::-1]}
        assert [await caller.get(task["taskId"]) for task in made] == made


@pytest.mark.requirement("v2025-list-pages", "v2025-list-next-cursor")
async def test_a_page_has_a_hundred_tasks_and_a_cursor_for_the_next_page(store: str | Path) -> None:
    server = ExampleServer(store, works=False, settings=allowing())
    add_gated(server)
    async with v2025_caller(server) as caller:
        ids = (await make_many(server, 2 * PAGE))[::-1]
        first = await caller.page()
        assert [task["taskId"] for task in first["tasks"]] == ids[:PAGE]
        second = await caller.page(first["nextCursor"])
        assert [task["taskId"] for task in second["tasks"]] == ids[PAGE:]
        assert "nextCursor" not in second, "there is no empty page at the end"
        # A place is a place, however often one goes there.
        assert await caller.page(first["nextCursor"]) == second


@pytest.mark.requirement("v2025-list-complete", "v2025-list-pages")
async def test_a_task_that_exists_throughout_is_listed_exactly_once_despite_concurrent_changes(
    store: str | Path,
) -> None:
    clock = FakeClock()
    server = ExampleServer(store, clock=clock, works=False, settings=allowing())
    add_gated(server, retention=Retention(keep=timedelta(0)))
    async with v2025_caller(server) as caller:
        early = await make_many(server, 250)
        clock.advance(1)
        late = await make_many(server, 250)
        seen: list[str] = []
        gone: set[str] = set()
        page = await caller.page()
        while True:
            seen += [task["taskId"] for task in page["tasks"]]
            assert len(seen) < 1_000, "it goes round in circles"
            if "nextCursor" not in page:
                break
            # Some have the creation time of existing tasks, so that they are listed between them.
            new = await make_many(server, 7)
            if len(seen) == 2 * PAGE:
                # Including the first task of the next page, some listed tasks, and some unlisted ones.
                gone = {seen[-1], early[0], early[100], late[0], new[0]}
                for task_id in gone:
                    await caller.cancel(task_id)
                clock.advance(60)
            page = await caller.page(page["nextCursor"])
        assert len(seen) == len(set(seen))
        assert set(seen) >= {*early, *late} - gone
        now = await all_of(caller)
        assert len(now) == len(set(now))
        assert set(now) >= {*early, *late} - gone
        assert not gone & set(now)


async def test_a_page_continues_correctly_although_the_task_at_its_boundary_is_deleted(store: str | Path) -> None:
    clock = FakeClock()
    server = ExampleServer(store, clock=clock, works=False, settings=allowing())
    add_gated(server, retention=Retention(keep=timedelta(0)))
    async with v2025_caller(server) as caller:
        await make_many(server, PAGE + 10)
        ids = await all_of(caller)
        first = await caller.page()
        await caller.cancel(ids[PAGE - 1])
        clock.advance(1)
        assert ids[PAGE - 1] not in await all_of(caller)
        rest = await caller.page(first["nextCursor"])
        assert [task["taskId"] for task in rest["tasks"]] == ids[PAGE:]


async def test_a_cursor_is_valid_on_another_connection_and_after_a_restart(tmp_path: Path) -> None:
    def make() -> ExampleServer:
        server = ExampleServer(tmp_path / "tasks.db", works=False, settings=allowing())
        add_gated(server)
        return server

    first, second = make(), make()
    async with v2025_caller(first) as caller, v2025_caller(first) as other:
        ids = (await make_many(first, PAGE + 1))[::-1]
        cursor = (await caller.page())["nextCursor"]
        rest = await other.page(cursor)
        assert [task["taskId"] for task in rest["tasks"]] == ids[PAGE:]
    async with v2025_caller(second) as caller:
        assert await caller.page(cursor) == rest


def forged(cursor: str) -> list[object]:
    """Forged cursors, made from a valid cursor or from nothing."""
    raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    changed = [raw[:n] + bytes([raw[n] ^ 1]) + raw[n + 1 :] for n in (0, 15, 16, 20, len(raw) - 1)]
    swapped = b"\0" * 16 + raw[16:]
    encoded = [base64.urlsafe_b64encode(one).decode().rstrip("=") for one in (*changed, swapped, raw[:16], raw[16:])]
    texts = [
        "",
        " ",
        "0",
        "abc",
        "null",
        "…",
        "a\0b",
        cursor[:-1],
        cursor[1:],
        f"{cursor}A",
        f" {cursor}",
        f"{cursor}\n",
    ]
    huge = ["A" * 999, "A" * 1_001, "A" * 1_000_000]
    return [*encoded, *texts, *huge, cursor.swapcase(), 0, 7, 1.5, True, False, [], [cursor], {}, {"cursor": cursor}]


@pytest.mark.requirement("v2025-bad-cursor-code", "v2025-informative-errors")
async def test_a_cursor_that_was_not_issued_is_rejected(store: str | Path) -> None:
    server = ExampleServer(store, works=False, settings=allowing())
    add_gated(server)
    async with v2025_caller(server) as caller:
        await make_many(server, PAGE + 1)
        cursor = (await caller.page())["nextCursor"]
        for one in forged(cursor):
            refused = await refusal(caller, "tasks/list", {"cursor": one})
            assert refused.code == -32602, one
            assert "cursor" in refused.message
            assert len(refused.message) < 200
        await caller.page(cursor)


@pytest.mark.requirement("v2025-bad-cursor-code", "v2025-list-of-own")
async def test_a_cursor_is_invalid_for_other_owners(tmp_path: Path) -> None:
    """Not to another owner, nor on another server of the same store, nor in another store."""
    who = [Owner.local()]

    def owner_of(_: AnyContext) -> Owner:
        return who[0]

    def make(file: str, **options: Any) -> ExampleServer:
        server = ExampleServer(tmp_path / file, works=False, settings=allowing(), owner=owner_of, **options)
        add_gated(server)
        return server

    server, elsewhere, other_store = make("a.db"), make("a.db", namespace="other"), make("b.db")
    async with v2025_caller(server) as caller, v2025_caller(elsewhere) as there, v2025_caller(other_store) as far:
        for one in (server, elsewhere, other_store):
            await make_many(one, PAGE + 1)
        cursor = (await caller.page())["nextCursor"]
        for other in (there, far):
            assert (await refusal(other, "tasks/list", {"cursor": cursor})).code == -32602
        for owner in (Owner.token("", "eve"), Owner(OwnerKind.LOCAL, ("eve",)), Owner(OwnerKind.HEADER, ("x",))):
            who[0] = owner
            assert (await refusal(caller, "tasks/list", {"cursor": cursor})).code == -32602
        who[0] = Owner.local()
        await caller.page(cursor)


OWNER = Owner.token("https://a.example", "alice@a.example")


def always_alice(_: AnyContext) -> Owner:
    return OWNER


async def test_a_cursor_reveals_neither_its_owner_nor_the_secret() -> None:
    server = ExampleServer(works=False, settings=allowing(), owner=always_alice)
    add_gated(server)
    async with v2025_caller(server) as caller:
        await make_many(server, PAGE + 1, OWNER)
        page = await caller.page()
        cursor = page["nextCursor"]
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        assert b"alice" not in raw
        assert len(cursor) < 300
        # It names the last task of its page, which its owner has seen.
        assert page["tasks"][-1]["taskId"].encode() in raw


@pytest.mark.requirement("v2025-list-not-for-strangers")
@pytest.mark.parametrize("cursor", [None, "abc", 7], ids=str)
async def test_anonymous_callers_can_not_list_tasks(cursor: object) -> None:
    server = ExampleServer(works=False)
    add_gated(server)
    async with v2025_caller(server, "http") as caller:
        await caller.start("gated")
        refused = await refusal(caller, "tasks/list", {} if cursor is None else {"cursor": cursor})
        assert refused.code == -32601
        assert "can't tell its callers apart" in refused.message


@pytest.mark.requirement("v2025-list-of-own")
async def test_a_list_contains_only_the_callers_own_tasks() -> None:
    server = ExampleServer(works=False)
    add_gated(server)
    async with (
        v2025_serving(server.mcp) as serving,
        v2025_http(serving, **ALICE) as hers,
        v2025_http(serving, **BOB) as his,
        v2025_http(serving) as nobodys,
        connected(hers) as alice,
        connected(his) as bob,
        connected(nobodys) as stranger,
    ):
        made = {one: [await one.start("gated") for _ in range(3)] for one in (alice, bob, stranger)}
        assert await all_of(alice) == made[alice][::-1]
        assert await all_of(bob) == made[bob][::-1]


@pytest.mark.requirement("v2025-list-complete")
async def test_a_list_has_every_task_that_its_owner_can_get_however_it_was_made() -> None:
    """As a task of either generation, or by a plain call."""
    server = ExampleServer()
    add_echo(server)
    gate = add_gated(server)
    async with v2025_caller(server) as caller, in_memory(server.mcp) as transport:
        ids = [await caller.start("say"), await Caller(transport).start("say")]
        await ended(server, ids[0])
        await caller.call("say")
        call = await caller.begin("tools/call", {"name": "gated"})
        await gate.started.wait()
        listed = (await caller.page())["tasks"]
        assert len(listed) == 4
        assert {task["taskId"] for task in listed} >= {*ids, gate.task_ids[0]}
        assert [await caller.get(task["taskId"]) for task in listed] == listed
        gate.open.set()
        await call.result()


async def test_expired_tasks_are_not_listed() -> None:
    clock = FakeClock()
    server = ExampleServer(clock=clock)
    add_echo(server, retention=Retention(keep=timedelta(seconds=5)))
    async with v2025_caller(server) as caller:
        task_id = await caller.start("say")
        await ended(server, task_id)
        assert await all_of(caller) == [task_id]
        clock.advance(5)
        assert await all_of(caller) == []


async def test_a_list_has_the_same_fields_as_a_poll() -> None:
    server = ExampleServer()
    add_echo(server)
    gate = add_gated(server)
    async with v2025_caller(server) as caller:
        ids = [await caller.start("say"), await caller.start("gated"), await caller.start("gated")]
        await ended(server, ids[0])
        await caller.cancel(ids[2])
        await gate.started.wait()
        listed = (await caller.page())["tasks"]
        assert [task["status"] for task in listed] == ["cancelled", "working", "completed"]
        gate.open.set()


async def test_concurrent_pagings_do_not_affect_each_other() -> None:
    server = ExampleServer(works=False, settings=allowing())
    add_gated(server)
    async with v2025_caller(server) as caller, v2025_caller(server) as other:
        ids = (await make_many(server, 2 * PAGE + 1))[::-1]
        assert await asyncio.gather(*(all_of(one) for one in (caller, other) * 5)) == [ids] * 10
