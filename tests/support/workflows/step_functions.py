"""Functions for the steps of tests."""

import asyncio
import threading
from collections import Counter
from typing import Any

from raincheck.errors import ToolError

not_a_function = 5


async def double(n: int) -> int:
    return n * 2


def where(n: int) -> list[Any]:
    """Return whether it runs in the main thread."""
    return [n, threading.current_thread() is threading.main_thread()]


def refuse(why: str) -> None:
    raise ToolError(why)


def fail() -> None:
    raise RuntimeError("password=hunter2")


called: Counter[str] = Counter()
"""The number of calls, by the name that the step passes."""


def divide(by: int, who: str) -> int:
    called[who] += 1
    return 6 // by


async def never_end(who: str) -> None:
    called[who] += 1
    await asyncio.Event().wait()


async def fail_beside(who: str) -> None:
    """Fail as soon as another call of this name has started."""
    while not called[who]:  # noqa: ASYNC110 - another step counts
        await asyncio.sleep(0)
    raise ToolError("no more")


def no_json() -> object:
    return object()


def echo(value: Any) -> Any:
    return value


async def leave() -> None:
    raise SystemExit(0)


def leave_in_a_thread() -> None:
    raise SystemExit(0)
