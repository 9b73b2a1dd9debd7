"""The tools that are served while they are attacked. The driver knows this file only by its path."""

import asyncio
import math
import os
from datetime import datetime
from typing import Any, Literal

from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

from raincheck import Owner, RetryPolicy, TaskContext, Tasks

VERIFIED = "Bearer verified-"
"""The beginning of an authorization header that this server accepts: the user's name, a dot and a secret follow."""

MAX_NAP = 2.0


def owner_of(ctx: ServerRequestContext[Any]) -> Owner | None:
    """Return a verified owner for some headers. All other callers are identified by the rules of raincheck."""
    request: Any = ctx.request
    header = "" if request is None else request.headers.get("authorization", "")
    if not header.startswith(VERIFIED):
        return None
    return Owner.token("https://issuer.example", header.removeprefix(VERIFIED).partition(".")[0])


mcp = MCPServer("attacked", log_level="INFO")
tasks = Tasks(mcp, owner=owner_of)


class Address(BaseModel):
    street: str
    number: int
    tags: list[str] = []


class Confirmation(BaseModel):
    ok: bool
    note: str = ""


@mcp.tool()
def plain(text: str) -> str:
    """Return the text, without a task."""
    return text


@tasks.tool(inline_for=1)
async def echo(value: Any) -> dict[str, Any]:
    """Return the value."""
    return {"value": value}


@tasks.tool(inline_for=0)
async def remember(text: str, task: TaskContext) -> str:
    """Return the text, after a step."""
    return await task.step("text", str, text)


@tasks.tool(inline_for=0, retry=RetryPolicy(attempts=1))
async def crash(text: str) -> str:
    """Raise an error that names a secret, which callers must not see."""
    raise RuntimeError(f"{os.environ['PLANTED_SECRET']} {len(text)}")


@tasks.tool(inline_for=0)
async def nap(seconds: float, task: TaskContext) -> str:
    """Sleep for at most two seconds, with progress."""
    await task.progress(0, 1, "asleep")
    await asyncio.sleep(min(seconds, MAX_NAP) if math.isfinite(seconds) else 0)
    return "awake"


@tasks.tool(inline_for=0)
async def wait(note: str, task: TaskContext) -> str:
    """Sleep for an hour, parked."""
    await task.sleep(3_600)
    return note


@tasks.tool(inline_for=0)
async def confirm(question: str, task: TaskContext) -> str:
    """Ask for a confirmation."""
    reply = await task.elicit(question, Confirmation)
    return reply.action


@tasks.tool(inline_for=1)
async def typed(
    when: datetime, count: int, colour: Literal["red", "blue"], address: Address, names: list[str] | None = None
) -> dict[str, Any]:
    """Take arguments of several types."""
    return {"when": when.isoformat(), "count": count, "colour": colour, "street": address.street, "names": names}


@tasks.tool(inline_for=0)
async def measure(text: str) -> int:
    """Return the length of a text that may be large."""
    return len(text)


@tasks.tool(inline_for=0)
async def large(size: int) -> str:
    """Return a text of at most two million characters."""
    return "x" * max(0, min(size, 2_000_000))
