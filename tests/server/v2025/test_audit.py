"""The audit log has a line for every action of a 2025-11-25 caller, with owner, task and outcome."""

import logging
from typing import Any

import pytest

from tests.server.test_owners import make_with_tokens
from tests.server.test_quotas import allowing
from tests.support.server.caller_v2025 import v2025_caller
from tests.support.server.example import ExampleServer
from tests.support.server.tools import add_gated
from tests.support.server.v2025.tools import ALICE, add_echo, ended, refusal, refused_call

pytestmark = pytest.mark.anyio

LOCAL = '["local"]'


def lines_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    records: list[Any] = [record for record in caplog.records if record.name == "raincheck.audit"]
    return [record.audit for record in records]


@pytest.mark.requirement("v2025-audit-events", "v2025-audit-owner")
async def test_a_task_is_noted_when_it_is_made_ends_and_is_retrieved(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "raincheck.audit")
    server = ExampleServer()
    add_echo(server)
    async with v2025_caller(server) as caller:
        task_id = await caller.start("say", {"words": "a secret"})
        await ended(server, task_id)
        assert [line["event"] for line in lines_of(caplog)] == ["created", "ended"]
        await caller.result(task_id)
        await caller.get(task_id)
        lines = lines_of(caplog)
        assert [line["event"] for line in lines] == ["created", "ended", "retrieved", "retrieved"]
        assert {(line["owner"], line["task"], line["tool"]) for line in lines} == {(LOCAL, task_id, "say")}
        assert "a secret" not in caplog.text


@pytest.mark.requirement("v2025-audit-events")
async def test_polls_of_a_working_task_are_not_audited(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "raincheck.audit")
    server = ExampleServer(works=False)
    add_gated(server)
    async with v2025_caller(server) as caller:
        task_id = await caller.start("gated")
        await caller.get(task_id)
        await caller.page()
        await caller.wait(task_id)
        assert [line["event"] for line in lines_of(caplog)] == ["created"]
        await caller.cancel(task_id)
        events = [line["event"] for line in lines_of(caplog)]
        assert events.index("ended") < events.index("cancelled")


@pytest.mark.requirement("v2025-audit-owner")
async def test_an_audit_line_names_the_verified_token_of_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "raincheck.audit")
    async with v2025_caller(make_with_tokens(), "http", headers=ALICE) as caller:
        await caller.result(await caller.start("quick"))
        owners = {line["owner"] for line in lines_of(caplog)}
        assert owners == {'["token", "https://a.example", "alice"]'}


@pytest.mark.requirement("v2025-audit-suspicious")
async def test_whatever_is_refused_is_noted_with_its_code(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "raincheck.audit")
    server = ExampleServer(works=False, settings=allowing(live=1))
    add_gated(server)
    async with v2025_caller(server) as caller:
        await caller.start("gated")
        await refused_call(caller, "gated")
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            await refusal(caller, method, {"taskId": "unknown"})
        await refusal(caller, "tasks/list", {"cursor": "forged"})
        refused = [(line["method"], line["code"]) for line in lines_of(caplog) if line["event"] == "refused"]
        assert refused == [
            ("tools/call", -32010),
            ("tasks/get", -32602),
            ("tasks/result", -32602),
            ("tasks/cancel", -32602),
            ("tasks/list", -32602),
        ]


@pytest.mark.requirement("v2025-audit-suspicious")
async def test_the_full_id_of_an_anonymous_callers_task_is_in_no_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    server = ExampleServer()
    add_echo(server)
    async with v2025_caller(server, "http") as caller:
        task_id = await caller.start("say")
        await caller.result(task_id)
        await refusal(caller, "tasks/cancel", {"taskId": task_id})
        assert len(lines_of(caplog)) == 4
        assert task_id not in caplog.text
