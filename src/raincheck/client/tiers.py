"""The ways to talk about a task, behind one front: 2026-07-28, 2025-11-25, and tools."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from mcp.client import Client
from mcp_types import CallToolResult

from raincheck.client.held import Held
from raincheck.client.slips import TierName
from raincheck.client.updates import Progress, Question, Update

Answers = Mapping[str, Mapping[str, Any]]
"""Answers by the keys of the questions, as the protocol has them: `{"action": "accept", "content": {…}}`."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool."""

    tool: str
    arguments: Mapping[str, Any]
    meta: Mapping[str, Any]
    ttl: float | None = None
    progressed: Callable[[Progress, str | None], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """What a call came to: its result, or a task and how to talk about it."""

    result: CallToolResult | None = None
    task_id: str = ""
    tier: TierName = "plain"
    tools: Mapping[str, str] = field(default_factory=dict[str, str])
    token: str | None = None
    """What its progress is told under."""


class Tier(Protocol):
    """One way. Nothing here tries again: whoever uses it does."""

    async def begin(self, client: Client, call: Call) -> Begun:
        """Call a tool."""
        ...

    async def look(self, client: Client, held: Held) -> Update:
        """The task as it is."""
        ...

    async def fetch(self, client: Client, held: Held, update: Update) -> CallToolResult:
        """The result of a task that has ended, and was not cancelled.

        Raises:
            MCPError: it has failed.
        """
        ...

    async def attend(self, client: Client, held: Held, question: Question | None) -> bool:
        """Have the client's callbacks asked this, or whatever the server asks by itself, until the task has ended.

        Returns whether the task has changed. One that has not is looked at again when it is time.
        """
        ...

    async def answer(self, client: Client, held: Held, answers: Answers) -> None:
        """Answer what the task asks."""
        ...

    async def cancel(self, client: Client, held: Held) -> None:
        """Ask for the task to be stopped. One that has ended stays as it is.

        Raises:
            CancelRefused: its workflow does not allow it.
        """
        ...

    async def listen(self, client: Client, held: Held, update: Update) -> bool:
        """Have the server tell when the task changes, for a while. Returns whether it is any use to listen again."""
        ...
