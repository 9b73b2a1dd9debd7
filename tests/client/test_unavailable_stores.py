"""A server that answers, and can't get at its tasks: it is asked again, as one that does not answer."""

import pytest
from mcp.shared.exceptions import MCPError

from raincheck.client import ServerUnreachable
from raincheck.wire import errors
from tests.support.client.callers import text_of
from tests.support.client.fake_servers import DONE, WORKING, Fake
from tests.support.client.transports import SkippingClock

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
AWAY = MCPError(errors.INTERNAL_ERROR, errors.STORE_UNAVAILABLE)


@BOTH
async def test_a_server_whose_store_is_away_for_a_while_is_asked_again(version: str) -> None:
    fake = Fake(version)
    ended = {**WORKING, "status": "completed", "resultType": "complete", "result": {**DONE, "resultType": "complete"}}
    fake.says("tasks/get", AWAY, AWAY, ended)
    fake.says("tasks/result", AWAY, DONE)
    async with fake.client(clock=SkippingClock()) as client:
        assert text_of(await client.call_tool("work")) == "done"


@BOTH
async def test_a_server_whose_store_stays_away_is_told_to_be_out_of_reach_and_the_call_is_not_failed(
    version: str,
) -> None:
    fake = Fake(version)
    for method in ("tasks/get", "tasks/result"):
        fake.says(method, AWAY)
    async with fake.client(clock=SkippingClock()) as client:
        with pytest.raises(ServerUnreachable, match="can't get at its tasks now"):
            await client.call_tool("work")


@BOTH
async def test_another_internal_error_is_the_servers_own(version: str) -> None:
    fake = Fake(version)
    for method in ("tasks/get", "tasks/result"):
        fake.says(method, MCPError(errors.INTERNAL_ERROR, "Internal server error"))
    async with fake.client(clock=SkippingClock()) as client:
        with pytest.raises(MCPError, match="Internal server error"):
            await client.call_tool("work")
