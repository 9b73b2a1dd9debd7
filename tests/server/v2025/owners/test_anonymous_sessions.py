"""`anonymous="session"`: an anonymous caller reaches a task only in the session that created it."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from raincheck import Quota
from raincheck.core.owner import OwnerKind
from raincheck.errors import ConfigurationError
from raincheck.testing import FakeClock
from tests.server.test_owners import all_of, bearing, make, make_with_tokens, serving, similar_to
from tests.server.test_owners import can_reach as can_reach_anew
from tests.server.v2025.owners.test_owners import as_, begin, can_reach, everything_seen
from tests.support.server.caller_v2026 import Caller, Refused
from tests.support.server.example import QUICK, ExampleServer
from tests.support.server.tools import text_of
from tests.support.server.transports import over_http
from tests.support.server.v2025.elicitation_caller import ElicitationCaller, connected, http_session

pytestmark = pytest.mark.anyio

BY_SESSION: dict[str, Any] = {"anonymous": "session"}
YES: dict[str, object] = {"action": "accept", "content": {}}


async def test_a_task_is_found_and_listed_in_its_session() -> None:
    async with serving(make(**BY_SESSION)) as transport, as_(transport, "", "") as (caller, other):
        assert caller.hello["capabilities"]["tasks"]["list"] == {}
        mine = [await caller.start("ask"), await caller.start("quick")]
        theirs = await other.start("quick")
        assert await caller.list_ids() == mine[::-1]
        assert await other.list_ids() == [theirs]
        waiting = await caller.wait(mine[0])
        await caller.reply(await caller.question(), result=YES)
        assert text_of(await waiting.result()) == "went on"
        task_id = await caller.start("ask")
        assert (await caller.cancel(task_id))["status"] == "cancelled"


@pytest.mark.parametrize("status", ["input_required", "completed"])
async def test_another_session_can_not_see_a_task_even_with_its_id(status: str) -> None:
    async with serving(make(**BY_SESSION)) as transport, as_(transport, "", "", "tom") as (caller, other, tom):
        task_id = await begin(caller, status)
        for stranger in (other, tom):
            seen = await everything_seen(stranger, task_id)
            assert seen == await everything_seen(stranger, similar_to(task_id))
            assert await stranger.list_ids() == []
            assert stranger.notifications == []
        assert not await can_reach_anew(Caller(transport), task_id)
        assert await can_reach(caller, task_id)


async def test_when_a_session_ends_its_tasks_become_unreachable() -> None:
    server = make(**BY_SESSION)
    async with serving(server) as transport, http_session(transport) as (caller, link):
        task_id = await begin(caller, "completed")
        await link.leave()
        async with http_session(transport) as (later, _):
            assert not await can_reach(later, task_id)
            assert await later.list_ids() == []
        assert not await can_reach_anew(Caller(transport), task_id)


async def test_callers_of_2026_have_no_session_and_reach_their_tasks_by_id() -> None:
    async with serving(make(**BY_SESSION)) as transport, as_(transport, "") as (old,):
        task_id = await Caller(transport).start("ask")
        assert await can_reach_anew(Caller(transport), task_id)
        assert not await can_reach(old, task_id)
        # Not even if it names one.
        of_session = await old.start("ask")
        named = Caller(transport, headers={"mcp-session-id": session_of(old)})
        assert not await can_reach_anew(named, of_session)
        task_id = await named.start("ask")
        assert await can_reach_anew(Caller(transport), task_id)


def session_of(caller: ElicitationCaller) -> str:
    session: str | None = getattr(caller.link, "session", None)
    assert session is not None
    return session


async def test_where_there_are_no_sessions_a_task_is_reached_by_its_id() -> None:
    server = make(**BY_SESSION)
    app = server.mcp.streamable_http_app(stateless_http=True)
    async with over_http(app) as transport, as_(transport, "", "") as (caller, other):
        assert "list" not in caller.hello["capabilities"]["tasks"]
        task_id = await caller.start("quick")
        assert await can_reach(other, task_id)


async def test_identified_callers_are_recognized_in_every_session() -> None:
    async with serving(make(**BY_SESSION)) as transport, as_(transport, "tom", "tom") as (first, other):
        task_id = await first.start("ask")
        assert await other.list_ids() == [task_id]
    async with serving(make_with_tokens(**BY_SESSION)) as transport, as_(transport, "alice", "alice") as (first, other):
        task_id = await first.start("ask")
        assert await other.list_ids() == [task_id]
        assert await can_reach_anew(bearing(transport, "alice"), task_id)
    server = make(**BY_SESSION)
    async with connected(server) as first, connected(server) as other:
        task_id = await first.start("ask")
        assert await other.list_ids() == [task_id]


async def test_a_session_id_is_neither_stored_nor_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with serving(make(tmp_path / "tasks.db", **BY_SESSION)) as transport, as_(transport, "") as (caller,):
        task_id = await begin(caller, "completed")
        await caller.list_ids()
        assert not await can_reach(caller, "unknown")
        session = session_of(caller)
        stored = await asyncio.to_thread(all_of, tmp_path)
    stored += await asyncio.to_thread(all_of, tmp_path)
    assert task_id.encode() in stored
    assert OwnerKind.SESSION.encode() in stored
    assert session.encode() not in stored
    records = [record for record in caplog.records if record.name.split(".")[0] == "raincheck"]
    assert any(record.name == "raincheck.audit" for record in records)
    assert [record for record in records if session in f"{record.getMessage()} {record.__dict__}"] == []


async def test_many_sessions_of_one_caller_share_the_quota_of_one_owner() -> None:
    clock = FakeClock()
    # One address gets half of it.
    settings = replace(QUICK, quota=Quota(created=6))
    async with (
        serving(make(works=False, settings=settings, clock=clock, **BY_SESSION)) as transport,
        as_(transport, "", "", "", "", "made up") as callers,
    ):
        for caller in callers[:3]:
            await caller.start("quick")
        for caller in callers:
            with pytest.raises(Refused) as refused:
                await caller.start("quick")
            assert refused.value.code == -32010
            assert refused.value.data["retryAfterMs"] == 60_000
        with pytest.raises(Refused, match="-32010"):
            await Caller(transport).start("quick")
        clock.advance(61)
        await callers[4].start("quick")


@pytest.mark.parametrize("value", ["", "Session", "ids", None, True, 1, ["session"]], ids=repr)
def test_the_anonymous_option_has_two_valid_values(value: Any) -> None:
    with pytest.raises(ConfigurationError, match='anonymous is "id" or "session", not'):
        ExampleServer(anonymous=value)
