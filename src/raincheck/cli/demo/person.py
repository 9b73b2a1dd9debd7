"""The person who watches, if there is one: may answer, and need not."""

import asyncio
import sys

from rich.console import Console
from rich.text import Text

ANSWERS_WITHIN = 6.0


class Person:
    """Asks at the terminal for a while. Nobody there, or no answer, is a yes."""

    def __init__(self, console: Console, *, is_there: bool) -> None:
        self._console = console
        self._is_there = is_there

    async def ask(self, question: str) -> tuple[bool, str]:
        """Whether they say yes, and who said it."""
        if not self._is_there:
            return True, "by itself"
        prompt = Text.assemble((question, "bold"), f" [Y/n] (answers itself in {ANSWERS_WITHIN:.0f} s) ")
        self._console.print(prompt, end="")
        try:
            async with asyncio.timeout(ANSWERS_WITHIN):
                line = await _next_line()
        except TimeoutError:
            self._console.print()
            return True, "by itself"
        return not line.strip().lower().startswith("n"), "as you said"


async def _next_line() -> str:
    loop, stdin = asyncio.get_running_loop(), sys.stdin
    ready: asyncio.Future[str] = loop.create_future()
    loop.add_reader(stdin, lambda: ready.done() or ready.set_result(stdin.readline()))
    try:
        return await ready
    finally:
        loop.remove_reader(stdin)
