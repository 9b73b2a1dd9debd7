"""The tasks and sessions of the fake server."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeGuard

Message = dict[str, Any]

RELATED = "io.modelcontextprotocol/related-task"
IMMEDIATE = "io.modelcontextprotocol/model-immediate-response"
TERMINAL = ("completed", "failed", "cancelled")

NOT_FOUND = -32601
INVALID = -32602
BROKEN = -32050
CANCELLED = -32000

SUPPORT = {
    "quick": "optional",
    "slow": "optional",
    "tool_error": "optional",
    "protocol_error": "optional",
    "asks": "optional",
    "samples": "optional",
    "reports_progress": "optional",
    "plain": None,
    "required": "required",
}
SLOW = 0.8
STEP = 0.1
STEPS = 8
MAX_TTL = 3_600_000
PAGE = 5


class Rejected(Exception):
    """Ends a request with a JSON-RPC error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.error: Message = {"code": code, "message": message}


class Session(Protocol):
    """The session of a client: its owner, its capabilities, and a way to send messages to it."""

    owner: str
    capabilities: Message

    async def send(self, message: Message, of: object = None) -> None:
        """Send a message on the stream of the request `of`, or else on the GET stream."""
        ...


@dataclass(eq=False)
class Task:
    id: str
    number: int
    session: Session
    tool: str
    ttl: int
    token: object = None
    status: str = "working"
    status_message: str | None = None
    created: datetime = field(default_factory=lambda: datetime.now(UTC))  # noqa: TID251 - the fake has no clock
    updated: datetime = field(default_factory=lambda: datetime.now(UTC))  # noqa: TID251 - likewise
    outcome: Message = field(default_factory=dict[str, Any])
    question: Message | None = None
    was_asked: bool = False
    reads: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    work: asyncio.Task[None] | None = None

    @property
    def has_ended(self) -> bool:
        return self.status in TERMINAL

    @property
    def is_expired(self) -> bool:
        return datetime.now(UTC) > self.created + timedelta(milliseconds=self.ttl)  # noqa: TID251 - likewise

    def change(self, status: str, message: str | None = None) -> None:
        self.status, self.status_message, self.updated = status, message, datetime.now(UTC)  # noqa: TID251 - likewise
        self.wake_waiters()

    def wake_waiters(self) -> None:
        """Wake the requests that wait for a change."""
        self.changed.set()
        self.changed = asyncio.Event()


def is_object(value: object) -> TypeGuard[Message]:
    return isinstance(value, dict)


def text(content: str) -> Message:
    return {"content": [{"type": "text", "text": content}], "isError": False}


def stamp(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
