"""Tools that tests of the protocol need again and again, and ways to call them."""

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
from tests.support.server.example import Shop
from tests.support.server.transports import Message

ON_BOTH_WIRES = pytest.mark.parametrize("way", ["open", "open_http"])

NO_TASKS: dict[str, Any] = {**ASKABLE}
"""What a caller declares that does not know tasks."""

LEGACY: dict[str, Any] = {**ASKABLE, "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}
"""What a caller declares that knows only the tasks of 2025."""


class Name(BaseModel):
    name: str


YES = {"action": "accept", "content": {"name": "Ada"}}


class Gate:
    """A tool that says when it has begun, and goes on when it is let."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.open = asyncio.Event()
        self.stopped = asyncio.Event()
        self.task_ids: list[str] = []

    async def pass_through(self, task: TaskContext) -> None:
        self.task_ids.append(task.id)
        self.begun.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.stopped.set()
            raise


def add_gated(shop: Shop, name: str = "gated", **settings: Any) -> Gate:
    """A tool that waits in its gate and then says `through`."""
    gate = Gate()

    @shop.tasks.tool(name=name, **settings)
    async def gated(task: TaskContext) -> str:
        await gate.pass_through(task)
        return "through"

    return gate


def add_greeting(shop: Shop, name: str = "greet", **settings: Any) -> list[object]:
    """A tool that asks for a name. What it got to hear is in the list."""
    heard: list[object] = []

    @shop.tasks.tool(name=name, **settings)
    async def greet(task: TaskContext) -> str:
        reply = await task.elicit("Who are you?", Name)
        heard.append((reply.action, reply.content))
        return f"Hello, {reply.value.name}!" if reply.value is not None else f"You said {reply.action}."

    return heard


def owner_over(way: str) -> Owner:
    """Whose the tasks are of a caller who says nothing of himself."""
    return Owner.local() if way == "open" else Owner.anonymous()


def without_tasks(caller: Caller, capabilities: dict[str, Any] | None = None) -> Caller:
    """The same wire, and a caller that does not declare the extension."""
    return Caller(caller.wire, capabilities=NO_TASKS if capabilities is None else capabilities, headers=caller.headers)


def somebody_else(caller: Caller) -> Caller:
    """The same wire, over HTTP, and another owner."""
    return Caller(caller.wire, headers={"authorization": "Bearer of somebody else"})


async def refusal(caller: Caller, method: str, params: dict[str, Any], **more: Any) -> Refused:
    """The error that a request is answered with."""
    with pytest.raises(Refused) as refused:
        await caller.request(method, params, **more)
    return refused.value


def but_for_meta(answer: Message) -> Message:
    """Without what the server says of itself with every answer."""
    return {name: value for name, value in answer.items() if name != "_meta"}


def text_of(result: Message) -> str:
    (block,) = result["content"]
    return block["text"]


def run_sql(file: Path, statement: str) -> None:
    """Change a store's file behind its back."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(statement)
        connection.commit()
