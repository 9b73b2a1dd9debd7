"""The audit log has a line for whatever callers of 2025-11-25 do with tasks: who, which, and how it ended."""

import logging
from typing import Any

import pytest

from tests.server.test_owners import make_with_tokens
from tests.server.test_quotas import allowing
from tests.support.server.caller_v2025 import calling
from tests.support.server.example import Shop
from tests.support.server.tools import add_gated
from tests.support.server.v2025.tools import ALICE, add_saying, ended, refusal, refused_call

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]

LOCAL = '["local"]'


def lines_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    records: list[Any] = [record for record in caplog.records if record.name == "raincheck.audit"]
    return [record.audit for record in records]


@pytest.mark.requirement("g1-audit-events", "g1-audit-owner")
async def test_a_task_is_noted_when_it_is_made_ends_and_is_retrieved(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "raincheck.audit")
    shop = Shop()
    add_saying(shop)
    async with calling(shop) as caller:
        task_id = await caller.start("say", {"words": "a secret"})
        await ended(shop, task_id)
        assert [line["event"] for line in lines_of(caplog)] == ["created", "ended"]
        await caller.result(task_id)
        await caller.get(task_id)
        lines = lines_of(caplog)
        assert [line["event"] for line in lines] == ["created", "ended", "retrieved", "retrieved"]
        assert {(line["owner"], line["task"], line["tool"]) for line in lines} == {(LOCAL, task_id, "say")}
        assert "a secret" not in caplog.text


@pytest.mark.requirement("g1-audit-events")
async def test_nothing_is_noted_of_what_is_only_looked_at_while_it_works(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "raincheck.audit")
    shop = Shop(works=False)
    add_gated(shop)
    async with calling(shop) as caller:
        task_id = await caller.start("gated")
        await caller.get(task_id)
        await caller.page()
        await caller.wait(task_id)
        assert [line["event"] for line in lines_of(caplog)] == ["created"]
        await caller.cancel(task_id)
        events = [line["event"] for line in lines_of(caplog)]
        assert events.index("ended") < events.index("cancelled")


@pytest.mark.requirement("g1-audit-owner")
async def test_a_line_says_who_it_was_by_the_token_that_was_verified(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "raincheck.audit")
    async with calling(make_with_tokens(), "http", headers=ALICE) as caller:
        await caller.result(await caller.start("quick"))
        owners = {line["owner"] for line in lines_of(caplog)}
        assert owners == {'["token", "https://a.example", "alice"]'}


@pytest.mark.requirement("g1-audit-suspicious")
async def test_whatever_is_refused_is_noted_with_its_code(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "raincheck.audit")
    shop = Shop(works=False, settings=allowing(live=1))
    add_gated(shop)
    async with calling(shop) as caller:
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


@pytest.mark.requirement("g1-audit-suspicious")
async def test_the_whole_id_of_a_strangers_task_is_in_no_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    shop = Shop()
    add_saying(shop)
    async with calling(shop, "http") as caller:
        task_id = await caller.start("say")
        await caller.result(task_id)
        await refusal(caller, "tasks/cancel", {"taskId": task_id})
        assert len(lines_of(caplog)) == 4
        assert task_id not in caplog.text
