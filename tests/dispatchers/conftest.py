"""What tests with callers need."""

import jsonschema
import pytest
from blockbuster import BlockBuster

assert jsonschema  # which the SDK imports when it first checks a result, and that reads files


@pytest.fixture(autouse=True)
def the_sdk_may_connect_as_it_does(nothing_blocks_the_event_loop: BlockBuster) -> None:
    """It imports modules and reads certificates when it connects, on behalf of our client."""
    for function in nothing_blocks_the_event_loop.functions.values():
        function.can_block_in("mcp/client/client.py", {"_build_session"})
        # The callers of these tests bring their own clients of HTTP, which do the same.
        function.can_block_in("tests/dispatching/chaos_site.py", {"_with_token"})
