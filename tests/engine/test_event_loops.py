"""An engine runs on other event loops, too."""

import asyncio

import pytest

from raincheck._async import is_running_in

pytestmark = pytest.mark.anyio


async def test_one_can_tell_whether_one_is_in_a_loop() -> None:
    loop = asyncio.get_running_loop()
    assert is_running_in(loop)
    assert not await asyncio.to_thread(is_running_in, loop)
