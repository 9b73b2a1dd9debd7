"""Tools that ask from a separate process, which imports them from here by name."""

from mcp.server.mcpserver import MCPServer

from raincheck import Settings, SyncTaskContext, TaskContext, Tasks
from raincheck.errors import ProtocolError
from tests.support.server.tools import Name

mcp = MCPServer("shop", log_level="WARNING")
tasks = Tasks(mcp, "memory:", settings=Settings(grace=0.2, park_after=0.05))


@tasks.tool(isolation="process")
def catches(task: SyncTaskContext) -> str:
    try:
        task.elicit("Who are you?", Name)
    except ProtocolError as error:
        return f"{type(error).__name__} {error.code} {error} {error.data}"
    return "answered"


@tasks.tool(isolation="process")
async def lets_it_pass(task: TaskContext) -> str:
    await task.elicit("Who are you?", Name)
    return "answered"
