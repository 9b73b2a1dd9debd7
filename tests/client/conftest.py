"""Fixtures for the tests of the client."""

import asyncio
import re
from collections.abc import AsyncIterator

import jsonschema
import pytest
from blockbuster import BlockBuster

_IS_NOT_OURS = re.compile("TestRunner|_shutdown_watcher")
"""Jobs of the test runner, and of the server's streams, which last as long as the loop."""

assert jsonschema  # which the SDK imports when it first checks a result, and that reads files


@pytest.fixture(autouse=True)
def the_sdk_may_connect_as_it_does(nothing_blocks_the_event_loop: BlockBuster) -> None:
    """It imports modules and reads certificates when it connects, and looks for programs, on behalf of our client."""
    for function in nothing_blocks_the_event_loop.functions.values():
        function.can_block_in("mcp/client/client.py", {"_build_session"})


@pytest.fixture(autouse=True)
async def no_job_is_left_behind(anyio_backend: str) -> AsyncIterator[None]:
    """Whatever a client began has ended when it was left."""
    del anyio_backend
    yield
    for _ in range(10):
        await asyncio.sleep(0)
    left = [running for running in asyncio.all_tasks() if not _IS_NOT_OURS.search(repr(running))]
    assert not left, left
