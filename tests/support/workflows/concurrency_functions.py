"""Functions that steps call, which tell how many of them run at once."""

import asyncio
from collections import defaultdict

_running: defaultdict[str, int] = defaultdict(int)
_most: defaultdict[str, int] = defaultdict(int)


async def meet(place: str) -> None:
    """Be there with others for a moment."""
    _running[place] += 1
    _most[place] = max(_most[place], _running[place])
    await asyncio.sleep(0.02)
    _running[place] -= 1


def most(place: str) -> int:
    """How many have been there at once."""
    return _most[place]
