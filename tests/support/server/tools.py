"""Tools that many tests of the protocol need, and functions that call them."""

# pyright: reportUnusedFunction=false

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from raincheck import Owner, TaskContext
from tests.support.server.caller_v2026 import ASKABLE, Caller, Refused
from tests.support.server.example import ExampleServer
from tests.support.server.transports import Message

ON_BOTH_TRANSPORTS = pytest.mark.parametrize("way", ["open", "open_http"])

NO_TASKS: dict[str, Any] = {**ASKABLE}
"""Capabilities of a caller that does not know tasks."""

LEGACY: dict[str, Any] = {**ASKABLE, "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}
"""Capabilities of a caller that knows only the tasks of 2025-11-25."""


class Name(BaseModel):
    name: str


YES = {"action": "accept", "content": {"name": "Ada"}}


class Gate:
    """Blocks the body of a tool: it signals that the body has started, and holds it until the gate is opened."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.open = asyncio.Event()
        self.stopped = asyncio.Event()
        self.task_ids: list[str] = []

    async def pass_through(self, task: TaskContext) -> None:
        self.task_ids.append(task.id)
        self.started.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.stopped.set()
            raise


def add_gated(server: ExampleServer, name: str = "gated", **settings: Any) -> Gate:
    """Add a tool that waits at a gate and then returns `through`. Return the gate."""
    gate = Gate()

    @server.tasks.tool(name=name, **settings)
    async def gated(task: TaskContext) -> str:
        await gate.pass_through(task)
        return "through"

    return gate


def add_greeting(server: ExampleServer, name: str = "greet", **settings: Any) -> list[object]:
    """Add a tool that asks for a name. Return the list in which it records the answers."""
    received: list[object] = []

    @server.tasks.tool(name=name, **settings)
    async def greet(task: TaskContext) -> str:
        reply = await task.elicit("Who are you?", Name)
        received.append((reply.action, reply.content))
        return f"Hello, {reply.value.name}!" if reply.value is not None else f"You said {reply.action}."

    return received


def owner_for(way: str) -> Owner:
    """Return the owner of tasks of a caller without credentials."""
    return Owner.local() if way == "open" else Owner.anonymous()


def without_tasks(caller: Caller, capabilities: dict[str, Any] | None = None) -> Caller:
    """Return a caller on the same transport that does not declare the extension."""
    return Caller(
        caller.transport, capabilities=NO_TASKS if capabilities is None else capabilities, headers=caller.headers
    )


def other_owner(caller: Caller) -> Caller:
    """Return a caller on the same HTTP transport that is another owner."""
    return Caller(caller.transport, headers={"authorization": "Bearer of another owner"})


async def refusal(caller: Caller, method: str, params: dict[str, Any], **more: Any) -> Refused:
    """Return the error that a request gets."""
    with pytest.raises(Refused) as refused:
        await caller.request(method, params, **more)
    return refused.value


def without_meta(answer: Message) -> Message:
    """Return an answer without its metadata, which describes the server."""
    return {name: value for name, value in answer.items() if name != "_meta"}


def text_of(result: Message) -> str:
    (block,) = result["content"]
    return block["text"]


def run_sql(file: Path, statement: str) -> None:
    """Change the file of a store directly."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(statement)
        connection.commit()
