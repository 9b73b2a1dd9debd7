"""The processes that `bench.scale` measures: `python -m bench.scale_server serve|work`, on RAINCHECK_STORE.

`serve` prints its port and runs no tasks. `work` only runs tasks.
"""

import asyncio
import sys
from dataclasses import replace

from mcp.server.mcpserver import MCPServer

from bench.owners import by_header
from bench.processes import serve
from raincheck import TaskContext, Tasks

NAMESPACE = "scale"
WORK, ASK = "work", "ask"


def make_tasks(*, works: bool) -> Tasks:
    mcp = MCPServer(NAMESPACE, log_level="WARNING")
    # Nothing is pruned during the measurement, and a task that waits for an answer parks at once.
    settings = replace(Tasks.DEFAULTS, prune_interval=3_600, park_after=0)
    tasks = Tasks(mcp, settings=settings, works=works, owner=by_header)

    @tasks.tool(name=WORK, inline_for=0)
    async def work(steps: int, task: TaskContext) -> dict[str, int]:  # pyright: ignore[reportUnusedFunction] - the decorator keeps it
        for number in range(steps):
            await task.step(f"step {number}", _twice, number)
        return {"steps": steps}

    @tasks.tool(name=ASK, inline_for=0)
    async def ask(task: TaskContext) -> str:  # pyright: ignore[reportUnusedFunction] - likewise
        return (await task.elicit("Go on?", {"type": "object", "properties": {}})).action

    return tasks


async def _twice(number: int) -> int:
    return 2 * number


async def _serve() -> None:
    await serve(make_tasks(works=False).server.streamable_http_app())


async def work() -> None:
    print("works", flush=True)
    await make_tasks(works=True).run_until_signal()


if __name__ == "__main__":
    asyncio.run({"serve": _serve, "work": work}[sys.argv[1]]())
