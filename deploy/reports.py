"""The server of this deployment: replace it with yours. Its store is the one that RAINCHECK_STORE names."""

import asyncio
from dataclasses import replace

from mcp.server.mcpserver import MCPServer

from raincheck import TaskContext, Tasks

mcp = MCPServer("reports")
# When a worker stops, tools may run for 10 s before their tasks are released. The default is 1 s.
tasks = Tasks(mcp, settings=replace(Tasks.DEFAULTS, grace=10))


@tasks.tool(inline_for=2)
async def build_report(year: int, months: int, task: TaskContext) -> dict[str, int]:
    """Build the report of a year. It takes a second for each month."""
    total = 0
    for month in range(1, months + 1):
        await task.progress(month - 1, months, f"adding up month {month}")
        total += await task.step(f"month {month}", add_up, year, month)  # recorded: not run again after a crash
    return {"total": total}


async def add_up(year: int, month: int) -> int:
    await asyncio.sleep(1)
    return year * month
