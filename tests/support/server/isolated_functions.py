"""Tools that run in a separate process, which finds them here by name."""

import os

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError as SdkToolError
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from raincheck import RetryPolicy, Settings, SyncTaskContext, TaskContext, Tasks, ToolError

mcp = MCPServer("shop", log_level="WARNING")
tasks = Tasks(mcp, "memory:", settings=Settings(grace=0.2))


class Order(BaseModel):
    """What is ordered."""

    item: str
    count: int = 1


class Receipt(BaseModel):
    """What was sold, and by which process."""

    text: str
    process: int


@tasks.tool(isolation="process")
def sell(order: Order, task: SyncTaskContext) -> Receipt:
    task.progress(1, 1, "selling")
    return Receipt(text=f"{order.count} {order.item}", process=os.getpid())


@tasks.tool(isolation="process")
async def sell_later(order: Order, task: TaskContext) -> Receipt:
    await task.progress(1, 1, "selling")
    return Receipt(text=f"{order.count} {order.item}", process=os.getpid())


@tasks.tool(isolation="process")
def refuse(how: str) -> str:
    if how == "tool":
        raise ToolError("out of stock")
    if how == "sdk":
        raise SdkToolError("out of stock")
    raise MCPError(-32050, "closed", {"until": "Monday"})


@tasks.tool(isolation="process", retry=RetryPolicy(attempts=1))
def die() -> str:
    os._exit(3)


def undecorated(order: Order, task: SyncTaskContext) -> Receipt:
    return sell(order, task)
