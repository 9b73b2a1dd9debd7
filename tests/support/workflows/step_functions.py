"""Functions that steps of tests call."""

import asyncio
import threading
from collections import Counter
from typing import Any

from raincheck.errors import ToolError

not_a_function = 5


async def double(n: int) -> int:
    return n * 2


def where(n: int) -> list[Any]:
    """In which thread it runs."""
    return [n, threading.current_thread() is threading.main_thread()]


def refuse(why: str) -> None:
    raise ToolError(why)


def fail() -> None:
    raise RuntimeError("password=hunter2")


called: Counter[str] = Counter()
"""How often somebody has divided, by who it was."""


def divide(by: int, who: str) -> int:
    called[who] += 1
    return 6 // by


async def never_end(who: str) -> None:
    called[who] += 1
    await asyncio.Event().wait()


async def fail_beside(who: str) -> None:
    """Fail as soon as somebody has begun."""
    while not called[who]:  # noqa: ASYNC110 - it is the other that counts
        await asyncio.sleep(0)
    raise ToolError("no more")


def no_json() -> object:
    return object()
