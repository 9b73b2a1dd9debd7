"""Only the owner of a task has access to it. For all other callers, it looks like an unknown task."""

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl

from raincheck import Owner, TaskContext, ToolError
from raincheck.core.owner import OwnerKind
from raincheck.server.caller import OwnerFunction
from raincheck.server.sdk_compat import AnyContext
from tests.support.server.caller_v2026 import TASKS, Caller, Refused
from tests.support.server.example import ExampleServer
from tests.support.server.transports import HttpTransport, in_memory, over_http

pytestmark = pytest.mark.anyio

AUTH = AuthSettings(issuer_url=AnyHttpUrl("https://auth.example.com"), resource_server_url=None)

YES: dict[str, Any] = {"elicit-0": {"action": "accept", "content": {}}}


class Verifier:
    """Knows these tokens, and no others."""

    def __init__(self, tokens: Mapping[str, AccessToken]) -> None:
        self._tokens = tokens

    async def verify_token(self, token: str) -> AccessToken | None:
        return self._tokens.get(token)


def token(client: str = "app", subject: str | None = None, issuer: str | None = "https://a.example") -> AccessToken:
    claims = None if issuer is None else {"iss": issuer}
    return AccessToken(token="", client_id=client, scopes=["read"], subject=subject, claims=claims)


PEOPLE = {
    "alice": token(subject="alice"),
    "alice-refreshed": token(subject="alice"),
    "alice-on-her-phone": token("phone", subject="alice"),
    "alice-of-another-issuer": token(subject="alice", issuer="https://b.example"),
    "alice-of-no-issuer": token(subject="alice", issuer=None),
    "mallory": token(subject="mallory"),
    "app": token("app"),
    "app-again": token("app"),
    "app-of-another-issuer": token("app", issuer="https://b.example"),
    "other-app": token("other-app"),
    "client-alice": token("alice"),
    "nobody-in-app": token("app", subject=""),
    "nobody-in-other-app": token("other-app", subject=""),
}


def make(store: str | Path = "memory:", **options: Any) -> ExampleServer:
    server = ExampleServer(store, **options)

    @server.tasks.tool()
    async def ask(task: TaskContext) -> str:
        await task.elicit("Go on?", {"type": "object"})
        return "went on"

    @server.tasks.tool()
    async def quick() -> str:
        return "done"

    @server.tasks.tool()
    async def broken() -> str:
        raise ToolError("broken")

    return server


def make_with_tokens(
    store: str | Path = "memory:", tokens: Mapping[str, AccessToken] = PEOPLE, **options: Any
) -> ExampleServer:
    return make(store, server={"auth": AUTH, "token_verifier": Verifier(tokens)}, **options)


@asynccontextmanager
async def serving(server: ExampleServer) -> AsyncGenerator[HttpTransport]:
    async with over_http(server.mcp.streamable_http_app()) as transport:
        yield transport


def bearing(transport: HttpTransport, name: str, **options: Any) -> Caller:
    return Caller(transport, headers={"authorization": f"Bearer {name}"}, **options)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    return "memory:" if request.param == "memory" else tmp_path / "tasks.db"


async def refusal(caller: Caller, task_id: str, method: str, **params: Any) -> tuple[Any, ...]:
    """All that a caller can see of a refusal, without the id."""
    with pytest.raises(Refused) as refused:
        await caller.request(method, {"taskId": task_id, **params})
    assert isinstance(caller.transport, HttpTransport)
    error = refused.value
    return caller.transport.last_status, error.code, error.message.replace(task_id, "ID"), error.data


async def everything_seen(caller: Caller, task_id: str) -> list[object]:
    """What comes of all that can be asked about a task that is not one's own."""
    answers: list[dict[str, Any]] = [{}, YES, {"elicit-0": 5}, {"elicit-0": "x" * 300_000}, {"unknown": {}}]
    seen: list[object] = [await refusal(caller, task_id, "tasks/get"), await refusal(caller, task_id, "tasks/cancel")]
    seen += [await refusal(caller, task_id, "tasks/update", inputResponses=one) for one in answers]
    seen.append(await refusal(caller, task_id, "tasks/update"))
    async with caller.listening(task_id) as pushed:
        seen.append(caller.agreed)
        seen += [one async for one in pushed]
    return seen


def similar_to(task_id: str) -> str:
    """An id of no task."""
    return task_id[:-1] + ("0" if task_id[-1] != "0" else "1")


async def can_reach(caller: Caller, task_id: str) -> bool:
    try:
        return (await caller.get(task_id))["taskId"] == task_id
    except Refused as refused:
        if refused.code != -32602:
            raise
        return False


@pytest.mark.parametrize("status", ["input_required", "completed", "failed", "cancelled"])
async def test_a_task_of_another_owner_looks_like_an_unknown_one(store: str | Path, status: str) -> None:
    async with serving(make_with_tokens(store)) as transport:
        alice, mallory = bearing(transport, "alice"), bearing(transport, "mallory")
        task_id = await alice.start("quick" if status == "completed" else "broken" if status == "failed" else "ask")
        if status == "cancelled":
            await alice.cancel(task_id)
        before = await alice.until(task_id, "input_required")
        seen = await everything_seen(mallory, task_id)
        assert seen == await everything_seen(mallory, similar_to(task_id))
        assert seen[0] == (400, -32602, "task 'ID' not found: it is unknown, has expired, or is not yours", None)
        assert seen[-1] == {"taskIds": []}
        # It parks by itself meanwhile, which is all that may have changed.
        assert {**await alice.get(task_id), "lastUpdatedAt": 0} == {**before, "lastUpdatedAt": 0}
        if status == "input_required":
            await alice.update(task_id, YES)
            assert (await alice.result(task_id))["content"][0]["text"] == "went on"


async def test_a_request_for_another_owners_task_takes_the_same_path_as_an_unknown_id() -> None:
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        # The sweeper goes through the audited store too, whenever it likes.
        is_server = "/raincheck/server/" in path and not path.endswith("/audit.py")
        if event == "call" and (is_server or path.endswith("/engine/engine.py")):
            calls.append((path, frame.f_code.co_qualname))

    async with serving(make_with_tokens(works=False)) as transport:
        task_id = await bearing(transport, "alice").start("ask")
        ways: list[list[tuple[str, str]]] = []
        for one in (task_id, similar_to(task_id)):
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                calls.clear()
                sys.setprofile(note)
                try:
                    await refusal(bearing(transport, "mallory"), one, method, inputResponses=YES)
                finally:
                    sys.setprofile(None)
                ways.append(list(calls))
    assert ways[0]
    assert ways[:3] == ways[3:]


async def test_a_stream_reports_only_the_owners_own_tasks() -> None:
    async with serving(make_with_tokens()) as transport:
        alice, mallory = bearing(transport, "alice"), bearing(transport, "mallory")
        hers, own = await alice.start("ask"), await mallory.start("quick")
        async with mallory.listening(hers, own, "unknown") as pushed:
            assert {one["taskId"] async for one in pushed} == {own}
        assert mallory.agreed == {"taskIds": [own]}


@pytest.mark.parametrize(
    ("maker", "reader", "may"),
    [
        ("alice", "alice-refreshed", True),
        ("alice", "alice-on-her-phone", True),
        ("alice", "alice-of-another-issuer", False),
        ("alice", "alice-of-no-issuer", False),
        ("alice", "client-alice", False),
        ("client-alice", "alice", False),
        ("app", "app-again", True),
        ("app", "app-of-another-issuer", False),
        ("app", "other-app", False),
        ("app", "alice", False),
        ("alice", "app", False),
        ("nobody-in-app", "nobody-in-other-app", False),
    ],
)
async def test_the_owner_is_issuer_and_subject_of_a_verified_token_or_else_its_client(
    maker: str, reader: str, may: bool
) -> None:
    async with serving(make_with_tokens()) as transport:
        task_id = await bearing(transport, maker).start("ask")
        assert await can_reach(bearing(transport, maker), task_id)
        assert await can_reach(bearing(transport, reader), task_id) is may


async def test_names_with_separators_and_odd_characters_do_not_collide() -> None:
    names = [
        ("https://a", "b"), ("https://a/b", ""), ('https://a", "b', "c"), ("https://a", 'b", "c'), ("a|b", "c"),
        ("a", "b|c"), ("a:b", "c"), ("a", "b:c"), ("a", "ü"), ("a", "u\u0308"), ("a", "b "), ("a", "b"), ("a", "B"),
        ("a", "b\0"), ("a", "b\n"), ("a", "\N{GRINNING FACE}"), ("a", '"]'), ("a", "%"), ("a", "_"),
    ]  # fmt: skip
    tokens = {str(number): token("app", subject, issuer) for number, (issuer, subject) in enumerate(names)}
    async with serving(make_with_tokens(tokens=tokens)) as transport:
        callers = [bearing(transport, name) for name in tokens]
        ids = [await one.start("ask") for one in callers]
        for one, task_id in zip(callers, ids, strict=True):
            async with one.listening(*ids):
                assert one.agreed == {"taskIds": [task_id]}


async def test_an_owner_whose_name_is_too_long_is_refused_with_a_clear_message() -> None:
    async with serving(make_with_tokens(tokens={"long": token(subject="s" * 2_000)})) as transport:
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            assert (await refusal(bearing(transport, "long"), "x", method, inputResponses={}))[1] == -32602
        with pytest.raises(Refused, match="owner's name has 2,000 characters") as refused:
            await bearing(transport, "long").call("quick")
        assert refused.value.code == -32602


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer bad"}, {"authorization": "Basic YTpi"}])
async def test_a_missing_token_is_refused_like_an_invalid_one(
    headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "raincheck.audit")
    async with serving(make_with_tokens()) as transport:
        task_id = await bearing(transport, "alice").start("ask")
        caplog.clear()
        stranger = Caller(transport, headers=headers)
        task: dict[str, Any] = {"taskId": task_id}
        for method, params in (("tasks/get", task), ("tasks/cancel", task), ("tools/call", {"name": "quick"})):
            # The SDK's answer is no JSON-RPC message, so it is read raw.
            sent = stranger.message(method, params)
            (messages,) = [one async for one in transport.exchange(sent, headers)]
            assert messages == {"error": "invalid_token", "error_description": "Authentication required"}
            assert transport.last_status == 401
    assert [
        record for record in caplog.records if record.name == "raincheck.audit" and "refused" in record.message
    ] == []


async def test_an_unverified_header_is_an_owner_that_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with serving(make(path)) as transport:
        task_id = await bearing(transport, "tom").start("ask")
        await bearing(transport, "tom").until(task_id, "input_required")
        assert not await can_reach(bearing(transport, "tim"), task_id)
    async with serving(make(path)) as transport:
        assert not await can_reach(bearing(transport, "tim"), task_id)
        assert not await can_reach(Caller(transport), task_id)
        assert not await can_reach(Caller(transport, headers={"authorization": "Basic tom"}), task_id)
        await bearing(transport, "tom").update(task_id, YES)
        assert (await bearing(transport, "tom").result(task_id))["content"][0]["text"] == "went on"


def all_of(folder: Path) -> bytes:
    return b"".join(one.read_bytes() for one in folder.iterdir())


@pytest.mark.parametrize("is_verified", [True, False])
async def test_neither_a_token_nor_a_header_is_stored_or_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_verified: bool
) -> None:
    secret = "".join(["s3cr3t", "-of-", "alice"])
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "tasks.db"
    verified = AccessToken(token=secret, client_id="app", scopes=["read"], subject="alice")
    async with serving(make_with_tokens(path, {secret: verified}) if is_verified else make(path)) as transport:
        alice = bearing(transport, secret)
        task_id = await alice.start("ask")
        await alice.until(task_id, "input_required")
        await alice.update(task_id, YES)
        await alice.result(task_id)
        await alice.cancel(task_id)
        assert not await can_reach(alice, "unknown")
        stored = await asyncio.to_thread(all_of, tmp_path)
    stored += await asyncio.to_thread(all_of, tmp_path)
    assert task_id.encode() in stored
    assert secret.encode() not in stored
    # The client's own logger may say what it sends: it is the caller's.
    said = [record for record in caplog.records if record.name.split(".")[0] in ("raincheck", "mcp")]
    assert any(record.name == "raincheck.audit" for record in said)
    assert [record for record in said if secret in f"{record.getMessage()} {record.__dict__}"] == []


async def test_an_anonymous_task_belongs_to_any_caller_with_its_id() -> None:
    async with serving(make()) as transport:
        task_id = await Caller(transport).start("ask")
        assert await can_reach(Caller(transport), task_id)
        assert await can_reach(Caller(transport, headers={"authorization": ""}), task_id)
        assert not await can_reach(bearing(transport, "tom"), task_id)
        hers = await bearing(transport, "tom").start("ask")
        assert not await can_reach(Caller(transport), hers)
        await Caller(transport).update(task_id, YES)
        assert (await Caller(transport).result(task_id))["content"][0]["text"] == "went on"


async def test_local_and_network_callers_are_different_owners(store: str | Path) -> None:
    server = make(store)
    async with in_memory(server.mcp) as streams, serving(server) as transport:
        local, remote = Caller(streams), Caller(transport)
        of_local, of_remote = await local.start("ask"), await remote.start("ask")
        assert [await can_reach(local, one) for one in (of_local, of_remote)] == [True, False]
        assert [await can_reach(remote, one) for one in (of_local, of_remote)] == [False, True]
        # The owner is no name that a header could spell.
        spelt = Caller(transport, headers={"authorization": Owner.local().key})
        assert not await can_reach(spelt, of_local)


async def test_the_request_state_of_a_round_is_useless_to_another_caller() -> None:
    async with serving(make()) as transport:
        tom = bearing(transport, "tom", capabilities={"elicitation": {}})
        tim = bearing(transport, "tim", capabilities={"elicitation": {}})
        asked = await tom.call("ask")
        assert asked["resultType"] == "input_required"
        round_two = {"inputResponses": YES, "requestState": asked["requestState"]}
        with pytest.raises(Refused, match="not found: it is unknown, has expired, or is not yours") as refused:
            await tim.call("ask", **round_two)
        assert refused.value.code == -32602
        assert (await tom.call("ask", **round_two))["content"][0]["text"] == "went on"


def by_tenant(ctx: AnyContext) -> Owner | None:
    tenant = None if ctx.request is None else ctx.request.headers.get("x-tenant")
    if tenant == "crash":
        raise LookupError("secret of the directory")
    if tenant == "odd":
        return "secret"  # type: ignore[return-value] # what an author might do
    return None if tenant is None else Owner(OwnerKind.CLIENT, (tenant,))


async def by_tenant_later(ctx: AnyContext) -> Owner | None:
    return by_tenant(ctx)


@pytest.mark.parametrize("owner", [by_tenant, by_tenant_later])
async def test_a_server_may_provide_its_own_owner_function(owner: OwnerFunction) -> None:
    async with serving(make(owner=owner)) as transport:

        def of(tenant: str, **more: str) -> Caller:
            return Caller(transport, headers={"x-tenant": tenant, **more})

        task_id = await of("red", authorization="Bearer 1").start("ask")
        assert await can_reach(of("red", authorization="Bearer 2"), task_id)
        assert not await can_reach(of("blue", authorization="Bearer 1"), task_id)
        # Where it returns None, the default rules apply.
        assert not await can_reach(bearing(transport, "1"), task_id)
        task_id = await bearing(transport, "1").start("ask")
        assert await can_reach(bearing(transport, "1"), task_id)
        assert not await can_reach(of("red", authorization="Bearer 1"), task_id)


@pytest.mark.parametrize("tenant", ["crash", "odd"])
async def test_a_failing_owner_function_refuses_the_request(tenant: str) -> None:
    async with serving(make(owner=by_tenant)) as transport:
        task_id = await Caller(transport).start("ask")
        stuck = Caller(transport, headers={"x-tenant": tenant})
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            _, code, message, data = await refusal(stuck, task_id, method, inputResponses=YES)
            assert (code, data) == (-32603, None)
            assert "secret" not in message
        with pytest.raises(Refused, match="-32603"):
            await stuck.call("quick")
        with pytest.raises(Refused, match="-32603"):
            async with stuck.listening(task_id):
                pass
        assert (await Caller(transport).get(task_id))["status"] in ("working", "input_required")


async def test_a_caller_that_declares_nothing_learns_nothing_of_a_task() -> None:
    async with serving(make()) as transport:
        task_id = await Caller(transport).start("ask")
        fallback_caller = Caller(transport, capabilities={})
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            seen = await refusal(fallback_caller, task_id, method, inputResponses=YES)
            assert seen == await refusal(fallback_caller, similar_to(task_id), method, inputResponses=YES)
            assert seen[1] == -32021
        assert TASKS["extensions"].keys() == seen[3]["requiredCapabilities"]["extensions"].keys()
