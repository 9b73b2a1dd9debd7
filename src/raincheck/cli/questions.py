"""Who answers what a task asks: the person at the terminal, or nobody, and then the task waits."""

import asyncio

from mcp.client import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitResult

from raincheck.cli.asking import ask_person
from raincheck.cli.live import Shown
from raincheck.cli.terminal import Aborted, Gone, Terminal


class Asker:
    """Takes the questions of a server. Without a terminal it leaves them open, and tells that it did."""

    def __init__(self, tool: str, shown: Shown, terminal: Terminal | None) -> None:
        self._tool = tool
        self._shown = shown
        self._terminal = terminal
        self.left_open: asyncio.Future[ElicitRequestParams] = asyncio.get_running_loop().create_future()
        """The first question that nobody answered."""

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        """What the SDK calls. A question that nobody answers never returns: an error would be an answer, too."""
        del context
        return await self.answer(params)

    async def answer(self, params: ElicitRequestParams) -> ElicitResult:
        """What the person answers. It does not return if there is nobody."""
        while self._terminal is not None and not self.left_open.done():
            try:
                await self._terminal.free.wait()
                async with self._terminal.turn:
                    with self._shown.aside():
                        return await ask_person(self._terminal, self._tool, params)
            except Aborted:
                # If the work goes on after that, it is asked again.
                continue
            except Gone:
                break
        if not self.left_open.done():
            self.left_open.set_result(params)
        return await asyncio.get_running_loop().create_future()
