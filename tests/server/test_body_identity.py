"""A body sees the identity and the trace of its own caller, in any process, and those of no other caller."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mcp.server.auth.middleware.auth_context import auth_context_var, get_access_token
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import Context
from opentelemetry import context, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from pydantic import AnyHttpUrl

from raincheck import SyncTaskContext, TaskContext
from tests.support.server.caller_v2026 import Caller
from tests.support.server.example import QUICK, ExampleServer
from tests.support.server.transports import HttpTransport, in_memory, over_http

pytestmark = pytest.mark.anyio

AUTH = AuthSettings(issuer_url=AnyHttpUrl("https://auth.example.com"), resource_server_url=None)

YES: dict[str, Any] = {"elicit-0": {"action": "accept", "content": {}}}

TRACE = "0af7651916cd43dd8448eb211c80319c"
OTHER_TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class Token(AccessToken):
    """As verifiers make them that keep more than the SDK asks for."""

    raw: str = ""


class Verifier:
    """Accepts any token as its own subject: `alice` is the subject alice."""

    async def verify_token(self, token: str) -> AccessToken | None:
        name = token.removeprefix("secret-of-")
        claims: dict[str, Any] = {"iss": "https://a.example", "tenant": name.upper(), "roles": ["one", "two"]}
        return Token(
            token=token, client_id="app", scopes=["read", name], subject=name, expires_at=4_000_000_000, claims=claims,
            raw=token,
        )  # fmt: skip


def whoami() -> dict[str, Any]:
    """All that a body can find out about who called."""
    token = get_access_token()
    span = trace.get_current_span().get_span_context()
    found = None if token is None else token.model_dump(mode="json")
    return {"token": found, "trace": f"{span.trace_id:032x}" if span.is_valid else None}


def make(store: str | Path = "memory:", *, has_auth: bool = True, **options: Any) -> ExampleServer:
    server = {"auth": AUTH, "token_verifier": Verifier()} if has_auth else {}
    example_server = ExampleServer(store, server=server, **options)

    @example_server.mcp.tool()
    async def registered_by_others() -> str:
        return json.dumps(whoami())

    @example_server.tasks.tool()
    async def in_the_loop(task: TaskContext) -> str:
        return json.dumps({**whoami(), "attempt": task.attempt})

    @example_server.tasks.tool()
    def in_a_thread(task: SyncTaskContext) -> str:
        return json.dumps({**whoami(), "attempt": task.attempt})

    @example_server.tasks.tool()
    async def with_a_context(ctx: Context[Any, Any]) -> str:
        assert ctx.request_context.request is None
        return json.dumps(whoami())

    @example_server.tasks.tool()
    async def after_an_answer(task: TaskContext) -> str:
        before = whoami()
        await task.elicit("Go on?", {"type": "object"})
        return json.dumps({**whoami(), "before": before, "attempt": task.attempt})

    @example_server.tasks.tool()
    async def through_a_child(task: TaskContext) -> str:
        child = await task.spawn("in_the_loop", {})
        return str(await child.result())

    @example_server.tasks.tool()
    async def leaves_another_behind() -> str:
        leftover = AccessToken(token="x", client_id="left", scopes=[], subject="behind")  # noqa: S106 - no secret
        auth_context_var.set(AuthenticatedUser(leftover))
        return json.dumps(whoami())

    example_server.tasks.enable("registered_by_others")
    return example_server


ELSEWHERE = make()
"""Made when this is imported, because that is how another process finds the tool."""


@ELSEWHERE.tasks.tool(isolation="process")
def in_a_process() -> str:
    return json.dumps({**whoami(), "process": os.getpid()})


KINDS = ["in_the_loop", "in_a_thread", "with_a_context", "registered_by_others", "through_a_child"]


@asynccontextmanager
async def serving(example_server: ExampleServer) -> AsyncGenerator[HttpTransport]:
    async with over_http(example_server.mcp.streamable_http_app()) as transport:
        yield transport


def bearing(transport: HttpTransport, name: str) -> Caller:
    return Caller(transport, headers={"authorization": f"Bearer secret-of-{name}"})


async def identity_in(caller: Caller, task_id: str) -> dict[str, Any]:
    return json.loads((await caller.result(task_id))["content"][0]["text"])


def identity_of(name: str) -> Mapping[str, Any]:
    return {
        "token": "",
        "client_id": "app",
        "scopes": ["read", name],
        "expires_at": 4_000_000_000,
        "resource": None,
        "subject": name,
        "claims": {"iss": "https://a.example", "tenant": name.upper(), "roles": ["one", "two"]},
    }


def traced(trace_id: str) -> dict[str, Any]:
    return {"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_body_sees_who_called_and_never_their_token(kind: str) -> None:
    async with serving(make()) as transport:
        alice = bearing(transport, "alice")
        found = await identity_in(alice, await alice.start(kind, meta=traced(TRACE)))
        assert found["token"] == identity_of("alice")
        assert found["trace"] == TRACE


async def test_a_body_in_a_separate_process_sees_who_called() -> None:
    async with serving(ELSEWHERE) as transport:
        alice, mallory = bearing(transport, "alice"), bearing(transport, "mallory")
        for caller, name, trace_id in ((alice, "alice", TRACE), (mallory, "mallory", OTHER_TRACE)):
            found = await identity_in(caller, await caller.start("in_a_process", meta=traced(trace_id)))
            assert found["process"] != os.getpid()
            assert found["token"] == identity_of(name)
            assert found["trace"] == trace_id


@pytest.mark.parametrize("kind", KINDS)
async def test_a_body_of_a_call_without_identity_or_trace_sees_none(kind: str) -> None:
    async with serving(make(has_auth=False)) as transport:
        caller = Caller(transport, headers={"authorization": "Bearer secret-of-nobody-who-is-verified"})
        found = await identity_in(caller, await caller.start(kind))
        assert (found["token"], found["trace"]) == (None, None)


async def test_a_task_that_resumes_in_another_process_sees_who_called(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    async with serving(make(path)) as transport:
        alice = bearing(transport, "alice")
        task_id = await alice.start("after_an_answer", meta=traced(TRACE))
        await alice.until(task_id, "input_required")
    async with serving(make(path)) as transport:
        # Somebody else is served first, by the same worker.
        mallory = bearing(transport, "mallory")
        assert (await identity_in(mallory, await mallory.start("in_the_loop")))["token"] == identity_of("mallory")
        alice = bearing(transport, "alice")
        await alice.update(task_id, YES)
        found = await identity_in(alice, task_id)
        assert found["attempt"] > 1
        assert found["token"] == found["before"]["token"] == identity_of("alice")
        assert found["trace"] == found["before"]["trace"] == TRACE


async def test_the_token_that_was_verified_is_nowhere_in_the_file(tmp_path: Path) -> None:
    async with serving(make(tmp_path / "tasks.db")) as transport:
        alice = bearing(transport, "alice")
        task_id = await alice.start("in_the_loop")
        await identity_in(alice, task_id)
        stored = await asyncio.to_thread(lambda: b"".join(one.read_bytes() for one in tmp_path.iterdir()))
    stored += await asyncio.to_thread(lambda: b"".join(one.read_bytes() for one in tmp_path.iterdir()))
    assert b"tenant" in stored, "the claims are kept"
    assert b"secret-of-alice" not in stored


async def test_concurrent_bodies_of_two_users_each_see_their_own_user() -> None:
    async with serving(make(settings=replace(QUICK, concurrency=4))) as transport:

        async def check(name: str, number: int) -> None:
            caller, trace_id = bearing(transport, name), f"{number + 1:032x}"
            task_id = await caller.start(KINDS[number % 4], meta=traced(trace_id))
            found = await identity_in(caller, task_id)
            assert found["token"] == identity_of(name)
            assert found["trace"] == trace_id

        async with asyncio.TaskGroup() as group:
            for number in range(24):
                group.create_task(check(("alice", "mallory")[number // 4 % 2], number))


async def test_a_body_sees_nothing_of_the_previous_body_on_its_worker() -> None:
    example_server = make(settings=replace(QUICK, concurrency=1))
    async with serving(example_server) as transport, in_memory(example_server.mcp) as streams:
        alice, local = bearing(transport, "alice"), Caller(streams)
        for kind in ("in_the_loop", "in_a_thread"):
            found = await identity_in(alice, await alice.start(kind, meta=traced(TRACE)))
            assert (found["token"], found["trace"]) == (identity_of("alice"), TRACE)
            found = await identity_in(local, await local.start(kind))
            assert (found["token"], found["trace"]) == (None, None)
            found = await identity_in(alice, await alice.start("leaves_another_behind"))
            assert found["token"]["subject"] == "behind"
            found = await identity_in(local, await local.start(kind, meta=traced(OTHER_TRACE)))
            assert (found["token"], found["trace"]) == (None, OTHER_TRACE)
            found = await identity_in(alice, await alice.start(kind))
            assert (found["token"], found["trace"]) == (identity_of("alice"), None)


async def test_a_worker_started_by_a_connection_has_no_identity_of_its_caller() -> None:
    # Over streams a server's lifespan is entered for each connection, in whatever context that is made.
    example_server = make(has_auth=False)
    leftover = AccessToken(token="x", client_id="first", scopes=[], subject="first")  # noqa: S106 - no secret
    identity = auth_context_var.set(AuthenticatedUser(leftover))
    span = context.attach(TraceContextTextMapPropagator().extract(traced(OTHER_TRACE)))
    try:
        async with in_memory(example_server.mcp) as streams:
            local = Caller(streams)
            for kind in KINDS:
                found = await identity_in(local, await local.start(kind, meta=traced(TRACE)))
                assert (found["token"], found["trace"]) == (None, TRACE)
    finally:
        context.detach(span)
        auth_context_var.reset(identity)


@pytest.mark.parametrize("odd", ["", "00-zz-zz-01", "00-" + "0" * 32 + "-b7ad6b7169203331-01", 5, None, {"a": 1}])
async def test_an_invalid_trace_is_ignored(odd: object) -> None:
    async with serving(make()) as transport:
        alice = bearing(transport, "alice")
        found = await identity_in(alice, await alice.start("in_the_loop", meta={"traceparent": odd}))
        assert (found["token"], found["trace"]) == (identity_of("alice"), None)


async def test_a_joined_task_keeps_the_identity_and_trace_of_its_first_call() -> None:
    async with serving(make()) as transport:
        alice = bearing(transport, "alice")
        key = {"raincheck/idempotency-key": "once"}
        task_id = await alice.start("in_the_loop", meta={**traced(TRACE), **key})
        assert await alice.start("in_the_loop", meta={**traced(OTHER_TRACE), **key}) == task_id
        assert (await identity_in(alice, task_id))["trace"] == TRACE
