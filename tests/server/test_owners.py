"""Whose a task is: who gets at it, who does not, and that those can't tell it from one that never was."""

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
from raincheck.server.identity import OwnerFunction
from raincheck.server.sdk_compat import AnyContext
from tests.support.server.caller_v2026 import TASKS, Caller, Refused
from tests.support.server.example import Shop
from tests.support.server.transports import HttpWire, in_memory, over_http

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


def make(store: str | Path = "memory:", **options: Any) -> Shop:
    shop = Shop(store, **options)

    @shop.tasks.tool()
    async def ask(task: TaskContext) -> str:
        await task.elicit("Go on?", {"type": "object"})
        return "went on"

    @shop.tasks.tool()
    async def quick() -> str:
        return "done"

    @shop.tasks.tool()
    async def broken() -> str:
        raise ToolError("broken")

    return shop


def make_with_tokens(store: str | Path = "memory:", tokens: Mapping[str, AccessToken] = PEOPLE, **options: Any) -> Shop:
    return make(store, server={"auth": AUTH, "token_verifier": Verifier(tokens)}, **options)


@asynccontextmanager
async def serving(shop: Shop) -> AsyncGenerator[HttpWire]:
    async with over_http(shop.mcp.streamable_http_app()) as wire:
        yield wire


def bearing(wire: HttpWire, name: str, **options: Any) -> Caller:
    return Caller(wire, headers={"authorization": f"Bearer {name}"}, **options)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    return "memory:" if request.param == "memory" else tmp_path / "tasks.db"


async def refusal(caller: Caller, task_id: str, method: str, **params: Any) -> tuple[Any, ...]:
    """All that a caller can see of a refusal, without the id."""
    with pytest.raises(Refused) as refused:
        await caller.request(method, {"taskId": task_id, **params})
    assert isinstance(caller.wire, HttpWire)
    error = refused.value
    return caller.wire.last_status, error.code, error.message.replace(task_id, "ID"), error.data


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
    """An id that nobody has."""
    return task_id[:-1] + ("0" if task_id[-1] != "0" else "1")


async def can_reach(caller: Caller, task_id: str) -> bool:
    try:
        return (await caller.get(task_id))["taskId"] == task_id
    except Refused as refused:
        if refused.code != -32602:
            raise
        return False


@pytest.mark.parametrize("status", ["input_required", "completed", "failed", "cancelled"])
async def test_a_stranger_cannot_tell_anothers_task_from_an_unknown_one(store: str | Path, status: str) -> None:
    async with serving(make_with_tokens(store)) as wire:
        alice, mallory = bearing(wire, "alice"), bearing(wire, "mallory")
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


async def test_a_strangers_request_takes_the_same_way_as_one_for_an_unknown_task() -> None:
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        # The sweeper goes through the audited store too, whenever it likes.
        is_ours = "/raincheck/server/" in path and not path.endswith("/audit.py")
        if event == "call" and (is_ours or path.endswith("/engine/calls.py")):
            calls.append((path, frame.f_code.co_qualname))

    async with serving(make_with_tokens(works=False)) as wire:
        task_id = await bearing(wire, "alice").start("ask")
        ways: list[list[tuple[str, str]]] = []
        for one in (task_id, similar_to(task_id)):
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                calls.clear()
                sys.setprofile(note)
                try:
                    await refusal(bearing(wire, "mallory"), one, method, inputResponses=YES)
                finally:
                    sys.setprofile(None)
                ways.append(list(calls))
    assert ways[0]
    assert ways[:3] == ways[3:]


async def test_a_stream_for_ones_own_task_and_anothers_tells_of_ones_own() -> None:
    async with serving(make_with_tokens()) as wire:
        alice, mallory = bearing(wire, "alice"), bearing(wire, "mallory")
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
    async with serving(make_with_tokens()) as wire:
        task_id = await bearing(wire, maker).start("ask")
        assert await can_reach(bearing(wire, maker), task_id)
        assert await can_reach(bearing(wire, reader), task_id) is may


async def test_names_with_separators_and_odd_characters_do_not_collide() -> None:
    names = [
        ("https://a", "b"), ("https://a/b", ""), ('https://a", "b', "c"), ("https://a", 'b", "c'), ("a|b", "c"),
        ("a", "b|c"), ("a:b", "c"), ("a", "b:c"), ("a", "ü"), ("a", "u\u0308"), ("a", "b "), ("a", "b"), ("a", "B"),
        ("a", "b\0"), ("a", "b\n"), ("a", "\N{GRINNING FACE}"), ("a", '"]'), ("a", "%"), ("a", "_"),
    ]  # fmt: skip
    tokens = {str(number): token("app", subject, issuer) for number, (issuer, subject) in enumerate(names)}
    async with serving(make_with_tokens(tokens=tokens)) as wire:
        callers = [bearing(wire, name) for name in tokens]
        ids = [await one.start("ask") for one in callers]
        for one, task_id in zip(callers, ids, strict=True):
            async with one.listening(*ids):
                assert one.agreed == {"taskIds": [task_id]}


async def test_an_owner_whose_name_is_too_long_is_refused_in_clear_words() -> None:
    async with serving(make_with_tokens(tokens={"long": token(subject="s" * 2_000)})) as wire:
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            assert (await refusal(bearing(wire, "long"), "x", method, inputResponses={}))[1] == -32602
        with pytest.raises(Refused, match="owner's name has 2,000 characters") as refused:
            await bearing(wire, "long").call("quick")
        assert refused.value.code == -32602


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer bad"}, {"authorization": "Basic YTpi"}])
async def test_no_token_gets_no_further_than_a_bad_one(
    headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "raincheck.audit")
    async with serving(make_with_tokens()) as wire:
        task_id = await bearing(wire, "alice").start("ask")
        caplog.clear()
        stranger = Caller(wire, headers=headers)
        task: dict[str, Any] = {"taskId": task_id}
        for method, params in (("tasks/get", task), ("tasks/cancel", task), ("tools/call", {"name": "quick"})):
            # The SDK's answer is no JSON-RPC message, so it is read raw.
            sent = stranger.message(method, params)
            (came,) = [one async for one in wire.exchange(sent, headers)]
            assert came == {"error": "invalid_token", "error_description": "Authentication required"}
            assert wire.last_status == 401
    assert [
        record for record in caplog.records if record.name == "raincheck.audit" and "refused" in record.message
    ] == []


async def test_a_header_that_nobody_verifies_is_an_owner_that_outlives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with serving(make(path)) as wire:
        task_id = await bearing(wire, "tom").start("ask")
        await bearing(wire, "tom").until(task_id, "input_required")
        assert not await can_reach(bearing(wire, "tim"), task_id)
    async with serving(make(path)) as wire:
        assert not await can_reach(bearing(wire, "tim"), task_id)
        assert not await can_reach(Caller(wire), task_id)
        assert not await can_reach(Caller(wire, headers={"authorization": "Basic tom"}), task_id)
        await bearing(wire, "tom").update(task_id, YES)
        assert (await bearing(wire, "tom").result(task_id))["content"][0]["text"] == "went on"


def all_of(folder: Path) -> bytes:
    return b"".join(one.read_bytes() for one in folder.iterdir())


@pytest.mark.parametrize("is_verified", [True, False])
async def test_neither_a_token_nor_a_header_is_kept_or_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_verified: bool
) -> None:
    secret = "".join(["s3cr3t", "-of-", "alice"])
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "tasks.db"
    verified = AccessToken(token=secret, client_id="app", scopes=["read"], subject="alice")
    async with serving(make_with_tokens(path, {secret: verified}) if is_verified else make(path)) as wire:
        alice = bearing(wire, secret)
        task_id = await alice.start("ask")
        await alice.until(task_id, "input_required")
        await alice.update(task_id, YES)
        await alice.result(task_id)
        await alice.cancel(task_id)
        assert not await can_reach(alice, "unknown")
        kept = await asyncio.to_thread(all_of, tmp_path)
    kept += await asyncio.to_thread(all_of, tmp_path)
    assert task_id.encode() in kept
    assert secret.encode() not in kept
    # The client's own logger may say what it sends: it is the caller's.
    said = [record for record in caplog.records if record.name.split(".")[0] in ("raincheck", "mcp")]
    assert any(record.name == "raincheck.audit" for record in said)
    assert [record for record in said if secret in f"{record.getMessage()} {record.__dict__}"] == []


async def test_an_anonymous_task_is_whoevers_that_holds_its_id_and_names_nobody() -> None:
    async with serving(make()) as wire:
        task_id = await Caller(wire).start("ask")
        assert await can_reach(Caller(wire), task_id)
        assert await can_reach(Caller(wire, headers={"authorization": ""}), task_id)
        assert not await can_reach(bearing(wire, "tom"), task_id)
        hers = await bearing(wire, "tom").start("ask")
        assert not await can_reach(Caller(wire), hers)
        await Caller(wire).update(task_id, YES)
        assert (await Caller(wire).result(task_id))["content"][0]["text"] == "went on"


async def test_tasks_of_this_machine_and_of_the_network_are_kept_apart(store: str | Path) -> None:
    shop = make(store)
    async with in_memory(shop.mcp) as streams, serving(shop) as wire:
        local, remote = Caller(streams), Caller(wire)
        of_local, of_remote = await local.start("ask"), await remote.start("ask")
        assert [await can_reach(local, one) for one in (of_local, of_remote)] == [True, False]
        assert [await can_reach(remote, one) for one in (of_local, of_remote)] == [False, True]
        # The owner is no name that a header could spell.
        spelt = Caller(wire, headers={"authorization": Owner.local().key})
        assert not await can_reach(spelt, of_local)


async def test_the_state_of_a_round_is_of_no_use_to_another_caller() -> None:
    async with serving(make()) as wire:
        tom = bearing(wire, "tom", capabilities={"elicitation": {}})
        tim = bearing(wire, "tim", capabilities={"elicitation": {}})
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
async def test_a_server_may_say_itself_whose_a_request_is(owner: OwnerFunction) -> None:
    async with serving(make(owner=owner)) as wire:

        def of(tenant: str, **more: str) -> Caller:
            return Caller(wire, headers={"x-tenant": tenant, **more})

        task_id = await of("red", authorization="Bearer 1").start("ask")
        assert await can_reach(of("red", authorization="Bearer 2"), task_id)
        assert not await can_reach(of("blue", authorization="Bearer 1"), task_id)
        # Where it says nothing, the usual rules hold.
        assert not await can_reach(bearing(wire, "1"), task_id)
        ours = await bearing(wire, "1").start("ask")
        assert await can_reach(bearing(wire, "1"), ours)
        assert not await can_reach(of("red", authorization="Bearer 1"), ours)


@pytest.mark.parametrize("tenant", ["crash", "odd"])
async def test_a_server_that_cannot_say_whose_a_request_is_serves_nobody(tenant: str) -> None:
    async with serving(make(owner=by_tenant)) as wire:
        task_id = await Caller(wire).start("ask")
        stuck = Caller(wire, headers={"x-tenant": tenant})
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            _, code, message, data = await refusal(stuck, task_id, method, inputResponses=YES)
            assert (code, data) == (-32603, None)
            assert "secret" not in message
        with pytest.raises(Refused, match="-32603"):
            await stuck.call("quick")
        with pytest.raises(Refused, match="-32603"):
            async with stuck.listening(task_id):
                pass
        assert (await Caller(wire).get(task_id))["status"] in ("working", "input_required")


async def test_a_caller_that_declares_nothing_learns_nothing_of_a_task() -> None:
    async with serving(make()) as wire:
        task_id = await Caller(wire).start("ask")
        plain = Caller(wire, capabilities={})
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            seen = await refusal(plain, task_id, method, inputResponses=YES)
            assert seen == await refusal(plain, similar_to(task_id), method, inputResponses=YES)
            assert seen[1] == -32021
        assert TASKS["extensions"].keys() == seen[3]["requiredCapabilities"]["extensions"].keys()
