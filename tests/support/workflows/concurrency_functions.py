"""Functions for steps, which count how many of them run at once."""

import asyncio
from collections import defaultdict

_running: defaultdict[str, int] = defaultdict(int)
_max_running: defaultdict[str, int] = defaultdict(int)


async def meet(group: str) -> None:
    """Run for a moment, counted in a group."""
    _running[group] += 1
    _max_running[group] = max(_max_running[group], _running[group])
    await asyncio.sleep(0.02)
    _running[group] -= 1


def max_running(group: str) -> int:
    """Return the highest number of a group that ran at once."""
    return _max_running[group]
