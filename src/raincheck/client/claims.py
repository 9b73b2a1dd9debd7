"""What tells the SDK's client of tasks: that it takes them, and what to do with one."""

from collections.abc import Callable, Sequence
from typing import Any

from mcp.client.extension import ClaimContext, ClientExtension, NotificationBinding, ResultClaim
from mcp_types import CallToolResult
from pydantic import BaseModel, ConfigDict

from raincheck.client.shapes import Created
from raincheck.wire.g2 import EXTENSION

Hear = Callable[[str], None]
"""Told the id of a task that has changed."""


class Claimed(CallToolResult):
    """Stands for a task where the SDK wants a result. It says that it is an error, so that it is checked no further."""

    model_config = ConfigDict(extra="allow")
    is_error: bool = True
    created: Created


class _Changed(BaseModel):
    model_config = ConfigDict(extra="allow")
    taskId: str  # noqa: N815 - as it is on the wire


class TakesTasks(ClientExtension):
    """Declares the extension, and hands tasks over as they come."""

    identifier = EXTENSION

    def __init__(self, hear: Hear) -> None:
        self._hear = hear

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Created, resolve=_hand_over)]

    def notifications(self) -> Sequence[NotificationBinding[Any]]:
        methods = ("notifications/tasks", "notifications/tasks/status")
        return [NotificationBinding(method=method, params_type=_Changed, handler=self._told) for method in methods]

    async def _told(self, changed: _Changed) -> None:
        self._hear(changed.taskId)


async def _hand_over(created: Created, ctx: ClaimContext) -> CallToolResult:
    del ctx
    return Claimed(content=[], created=created)
