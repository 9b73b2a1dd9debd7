"""Owners of 2025-11-25 tasks: an owner finds a task in every session, and other owners can't see it."""

# pyright: reportUnusedFunction=false

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import FrameType

import pytest
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken

from raincheck import Owner, TaskContext
from tests.server.test_owners import PEOPLE, by_tenant, make, make_with_tokens, serving, similar_to, token
from tests.support.server.caller_v2026 import Refused
from tests.support.server.example import ExampleServer
from tests.support.server.tools import text_of
from tests.support.server.transports import HttpTransport
from tests.support.server.v2025.elicitation_caller import ElicitationCaller, connected, http_session

pytestmark = pytest.mark.anyio

YES: dict[str, object] = {"action": "accept", "content": {}}
METHODS = ("tasks/get", "tasks/result", "tasks/cancel")


@asynccontextmanager
async def as_(transport: HttpTransport, *names: str) -> AsyncGenerator[list[ElicitationCaller]]:
    """A session for each of these credentials."""
    async with AsyncExitStack() as stack:
        headers = [{"authorization": f"Bearer {name}"} if name else {} for name in names]
        yield [(await stack.enter_async_context(http_session(transport, one)))[0] for one in headers]


async def refusal(caller: ElicitationCaller, task_id: str, method: str) -> tuple[object, ...]:
    """All that a caller can see of a refusal, without the id."""
    with pytest.raises(Refused) as refused:
        await caller.request(method, {"taskId": task_id})
    return refused.value.code, refused.value.message.replace(task_id, "ID"), refused.value.data


async def everything_seen(caller: ElicitationCaller, task_id: str) -> list[object]:
    return [await refusal(caller, task_id, method) for method in METHODS]


async def can_reach(caller: ElicitationCaller, task_id: str) -> bool:
    try:
        return (await caller.get(task_id))["taskId"] == task_id
    except Refused as refused:
        if refused.code != -32602:
            raise
        return False


async def begin(caller: ElicitationCaller, status: str) -> str:
    """A task that is like that."""
    tools = {"completed": "quick", "failed": "broken"}
    task_id = await caller.start(tools.get(status, "ask"))
    if status == "cancelled":
        await caller.cancel(task_id)
    elif status in tools:
        await caller.result(task_id)
    else:
        waiting = await caller.wait(task_id)
        await caller.question()
        await caller.cancel_request(waiting)
        with pytest.raises(Refused):
            await waiting.result()
    assert (await caller.get(task_id))["status"] == status
    return task_id


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    return "memory:" if request.param == "memory" else tmp_path / "tasks.db"


async def test_for_a_session_owner_another_owners_task_looks_exactly_like_an_unknown_one(store: str | Path) -> None:
    async with serving(make_with_tokens(store)) as transport, as_(transport, "alice", "mallory") as (alice, mallory):
        for status in ("input_required", "completed", "failed", "cancelled"):
            task_id = await begin(alice, status)
            seen = await everything_seen(mallory, task_id)
            assert seen == await everything_seen(mallory, similar_to(task_id))
            assert seen == [(-32602, "task 'ID' not found: it is unknown, has expired, or is not yours", None)] * 3
            assert await mallory.list_ids() == []
            assert (await alice.get(task_id))["status"] == status
        assert len(await alice.list_ids()) == 4
        assert mallory.notifications == []
        assert mallory.all_requests == []


async def test_for_a_session_owner_a_request_for_another_owners_task_takes_the_same_path_as_for_an_unknown_one() -> (
    None
):
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        # The sweeper writes to the audit log too, and pushes to other callers follow tasks, at unpredictable times.
        is_follower = frame.f_code.co_qualname.startswith(("SharedFollower.", "_FollowedTask."))
        is_ours = "/raincheck/server/" in path and not path.endswith("/audit.py") and not is_follower
        if event == "call" and (is_ours or path.endswith("/engine/engine.py")):
            calls.append((path, frame.f_code.co_qualname))

    async with (
        serving(make_with_tokens(works=False)) as transport,
        as_(transport, "alice", "mallory") as (alice, mallory),
    ):
        task_id = await alice.start("ask")
        ways: list[list[tuple[str, str]]] = []
        for one in (task_id, similar_to(task_id)):
            for method in METHODS:
                calls.clear()
                sys.setprofile(note)
                try:
                    await refusal(mallory, one, method)
                finally:
                    sys.setprofile(None)
                ways.append(list(calls))
    assert all(ways)
    assert ways[:3] == ways[3:]


@pytest.mark.parametrize(
    ("maker", "reader", "may"),
    [
        ("alice", "alice-refreshed", True),
        ("alice", "alice-on-her-phone", True),
        ("alice", "alice-of-another-issuer", False),
        ("alice", "client-alice", False),
        ("app", "app-again", True),
        ("app", "app-of-another-issuer", False),
        ("app", "alice", False),
    ],
)
async def test_another_session_of_the_same_owner_polls_reads_answers_and_lists_the_task(
    maker: str, reader: str, may: bool
) -> None:
    async with serving(make_with_tokens()) as transport, as_(transport, maker, reader) as (first, other):
        assert "list" in first.hello["capabilities"]["tasks"]
        task_id = await first.start("ask")
        assert await other.list_ids() == ([task_id] if may else [])
        assert await can_reach(other, task_id) is may
        if may:
            waiting = await other.wait(task_id)
            await other.reply(await other.question(), result=YES)
            assert text_of(await waiting.result()) == text_of(await first.result(task_id)) == "went on"


@pytest.mark.parametrize("name", ["alice", "app"])
async def test_a_task_is_found_again_after_a_restart_in_a_new_session(tmp_path: Path, name: str) -> None:
    async with serving(make_with_tokens(tmp_path / "tasks.db")) as transport, as_(transport, name) as (caller,):
        task_id = await begin(caller, "input_required")
    async with (
        serving(make_with_tokens(tmp_path / "tasks.db")) as transport,
        as_(transport, name, "mallory") as (caller, other),
    ):
        assert await caller.list_ids() == [task_id]
        assert (await other.list_ids(), await can_reach(other, task_id)) == ([], False)
        waiting = await caller.wait(task_id)
        await caller.reply(await caller.question(), result=YES)
        assert text_of(await waiting.result()) == "went on"


async def test_an_unverified_header_identifies_an_owner_in_every_session_and_after_a_restart(tmp_path: Path) -> None:
    async with (
        serving(make(tmp_path / "tasks.db")) as transport,
        as_(transport, "tom", "tim", "tom") as (tom, tim, again),
    ):
        task_id = await begin(tom, "input_required")
        assert await again.list_ids() == [task_id]
        assert (await tim.list_ids(), await can_reach(tim, task_id)) == ([], False)
    async with (
        serving(make(tmp_path / "tasks.db")) as transport,
        as_(transport, "tom", "tim", "") as (tom, tim, nobody),
    ):
        assert await tom.list_ids() == [task_id]
        assert (await tim.list_ids(), await can_reach(tim, task_id)) == ([], False)
        assert not await can_reach(nobody, task_id)
        assert (await tom.cancel(task_id))["status"] == "cancelled"


async def test_tasks_of_local_callers_are_visible_on_every_connection_and_separate_from_the_networks(
    store: str | Path,
) -> None:
    server = make(store)
    async with serving(server) as transport, as_(transport, "") as (remote,):
        async with connected(server) as first:
            of_local, of_remote = await begin(first, "completed"), await remote.start("ask")
        async with connected(server) as later:
            assert await later.list_ids() == [of_local]
            assert text_of(await later.result(of_local)) == "done"
            assert [await can_reach(later, one) for one in (of_local, of_remote)] == [True, False]
            assert [await can_reach(remote, one) for one in (of_local, of_remote)] == [False, True]


async def test_without_authentication_a_task_belongs_to_any_caller_with_its_id_and_nothing_is_listed() -> None:
    async with serving(make()) as transport, as_(transport, "", "", "tom") as (first, other, tom):
        for caller in (first, other):
            assert caller.hello["capabilities"]["tasks"] == {"cancel": {}, "requests": {"tools": {"call": {}}}}
        assert tom.hello["capabilities"]["tasks"]["list"] == {}
        task_id = await first.start("ask")
        assert await can_reach(other, task_id)
        assert not await can_reach(tom, task_id)
        for params in ({}, {"cursor": "x"}):
            with pytest.raises(Refused) as refused:
                await first.request("tasks/list", params)
            assert refused.value.code == -32601
        waiting = await other.wait(task_id)
        await other.reply(await other.question(), result=YES)
        assert text_of(await waiting.result()) == "went on"


async def test_a_server_can_determine_the_owner_of_a_session_itself() -> None:
    async with serving(make(owner=by_tenant)) as transport:
        red, blue = {"x-tenant": "red"}, {"x-tenant": "blue"}
        async with (
            http_session(transport, red) as (first, _),
            http_session(transport, red) as (again, _),
            http_session(transport, blue) as (other, _),
            http_session(transport) as (nobody, _),
        ):
            task_id = await first.start("ask")
            assert await again.list_ids() == [task_id]
            assert await other.list_ids() == []
            assert [await can_reach(one, task_id) for one in (again, other, nobody)] == [True, False, False]


async def test_callers_that_share_a_session_are_owners_by_their_own_credentials() -> None:
    """The header is not verified, so the SDK lets them share it. The owner is determined again for each request."""
    server = make()
    seen: dict[str, Owner] = {}

    @server.tasks.tool
    async def who(task: TaskContext) -> None:
        seen[task.id] = task.owner

    async with serving(server) as transport, http_session(transport, {"authorization": "Bearer tom"}) as (caller, link):
        of_tom = await caller.start("who")
        await caller.result(of_tom)
        link.show(authorization="Bearer tim")
        assert not await can_reach(caller, of_tom)
        of_tim = await caller.start("who")
        await caller.result(of_tim)
        assert await caller.list_ids() == [of_tim]
        assert seen[of_tom] != seen[of_tim]
        link.show(authorization="Bearer tom")
        assert await caller.list_ids() == [of_tom]


def with_scopes(*scopes: str) -> AccessToken:
    return token(subject="alice").model_copy(update={"scopes": list(scopes)})


def make_identity_server(tokens: dict[str, AccessToken]) -> tuple[ExampleServer, asyncio.Event]:
    server, go_on = make_with_tokens(tokens=tokens), asyncio.Event()

    def scopes() -> str:
        shown = get_access_token()
        return "nobody" if shown is None else " ".join([str(shown.subject), *shown.scopes])

    @server.tasks.tool
    async def who() -> str:
        await go_on.wait()
        return scopes()

    @server.tasks.tool
    async def who_later(task: TaskContext) -> str:
        before = scopes()
        await task.elicit("Go on?", {"type": "object"})
        return f"{before}, {scopes()}"

    return server, go_on


async def test_each_body_sees_the_headers_of_its_own_call_in_a_shared_session() -> None:
    tokens = {"reads": with_scopes("read"), "writes": with_scopes("read", "write")}
    server, go_on = make_identity_server(tokens)
    async with (
        serving(server) as transport,
        http_session(transport, {"authorization": "Bearer reads"}) as (caller, link),
    ):
        ids: dict[str, str] = {}
        for number in range(6):
            name = ("reads", "writes")[number % 2]
            link.show(authorization=f"Bearer {name}")
            ids[await caller.start("who")] = name
        go_on.set()
        for task_id, name in ids.items():
            assert text_of(await caller.result(task_id)) == " ".join(["alice", *tokens[name].scopes])


async def test_a_body_that_resumes_after_an_answer_sees_the_caller_and_not_the_answerer() -> None:
    tokens = {**PEOPLE, "reads": with_scopes("read"), "writes": with_scopes("read", "write")}
    server, go_on = make_identity_server(tokens)
    go_on.set()
    async with serving(server) as transport, as_(transport, "reads", "writes", "mallory") as (reads, writes, mallory):
        task_id = await reads.start("who_later")
        waiting = await writes.wait(task_id)
        question = await writes.question()
        # The same worker serves another caller in between.
        assert text_of(await mallory.result(await mallory.start("who"))) == "mallory read"
        await writes.reply(question, result=YES)
        assert text_of(await waiting.result()) == "alice read, alice read"
