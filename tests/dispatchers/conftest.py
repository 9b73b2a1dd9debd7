"""Setup for tests with MCP clients."""

import jsonschema
import pytest
from blockbuster import BlockBuster

assert jsonschema  # the SDK imports it when it first checks a result, which reads files


@pytest.fixture(autouse=True)
def the_sdk_may_connect_as_it_does(nothing_blocks_the_event_loop: BlockBuster) -> None:
    """It imports modules and reads certificates when it connects, on behalf of our client."""
    for function in nothing_blocks_the_event_loop.functions.values():
        function.can_block_in("mcp/client/client.py", {"_build_session"})
        # The clients of these tests use their own HTTP clients, which read files too.
        function.can_block_in("tests/support/dispatchers/chaos_site.py", {"_with_token"})
