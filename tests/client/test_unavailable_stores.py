"""Tests for a server whose store is unavailable: requests are retried, as for an unavailable server."""

import pytest
from mcp.shared.exceptions import MCPError

from raincheck.client import ServerUnreachable
from raincheck.wire import errors
from tests.support.client.callers import text_of
from tests.support.client.fake_servers import DONE, WORKING, FakeServer
from tests.support.client.transports import SkippingClock

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
AWAY = MCPError(errors.INTERNAL_ERROR, errors.STORE_UNAVAILABLE)


@BOTH
async def test_requests_are_retried_while_the_servers_store_is_unavailable(version: str) -> None:
    fake = FakeServer(version)
    ended = {**WORKING, "status": "completed", "resultType": "complete", "result": {**DONE, "resultType": "complete"}}
    fake.set_responses("tasks/get", AWAY, AWAY, ended)
    fake.set_responses("tasks/result", AWAY, DONE)
    async with fake.client(clock=SkippingClock()) as client:
        assert text_of(await client.call_tool("work")) == "done"


@BOTH
async def test_a_store_that_stays_unavailable_raises_server_unreachable_and_not_a_failure(
    version: str,
) -> None:
    fake = FakeServer(version)
    for method in ("tasks/get", "tasks/result"):
        fake.set_responses(method, AWAY)
    async with fake.client(clock=SkippingClock()) as client:
        with pytest.raises(ServerUnreachable, match="can't reach its task store"):
            await client.call_tool("work")


@BOTH
async def test_other_internal_errors_are_raised_as_the_servers_error(version: str) -> None:
    fake = FakeServer(version)
    for method in ("tasks/get", "tasks/result"):
        fake.set_responses(method, MCPError(errors.INTERNAL_ERROR, "Internal server error"))
    async with fake.client(clock=SkippingClock()) as client:
        with pytest.raises(MCPError, match="Internal server error"):
            await client.call_tool("work")
