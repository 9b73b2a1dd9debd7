"""What a server tells of its tools, asked once for each connection."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self
from weakref import WeakKeyDictionary

from mcp.client import Client
from mcp.client.session import ClientSession  # noqa: TC002 - with the others
from mcp_types import PaginatedRequestParams, Tool

from raincheck.client.raw import reading
from raincheck.wire.results import TAKES_KEYS

MOST_PAGES = 100
"""Of a list of tools: a server that pages in circles must not hang a call."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A tool. One that is not listed has nothing to say."""

    task_support: str = "forbidden"
    """Whether it can be called as a task, in the words of 2025-11-25."""
    takes_keys: bool = False
    """Whether the server begins a call of it once, by the key that this caller gives it."""

    @classmethod
    def of(cls, tool: Tool) -> Self:
        support = (tool.execution.task_support if tool.execution else None) or "forbidden"
        return cls(support, (tool.meta or {}).get(TAKES_KEYS) is True)


class Listing:
    """The tools of a server."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[ClientSession, Mapping[str, Listed]] = WeakKeyDictionary()

    def is_known(self, client: Client) -> bool:
        """Whether they have been listed on this connection."""
        return client.session in self._known

    async def find(self, client: Client, tool: str) -> Listed:
        """What is told of a tool."""
        known = self._known.get(client.session)
        if known is None:
            with reading("the list of tools"):
                known = await _listed(client)
            self._known[client.session] = known
        return known.get(tool, Listed())

    def forget(self, client: Client) -> None:
        """Ask anew next time."""
        self._known.pop(client.session, None)


async def _listed(client: Client) -> Mapping[str, Listed]:
    found: dict[str, Listed] = {}
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        asked = {"cursor": cursor, "_meta": {TAKES_KEYS: True}}
        page = await client.session.list_tools(params=PaginatedRequestParams.model_validate(asked))
        found |= {tool.name: Listed.of(tool) for tool in page.tools}
        cursor = page.next_cursor
        if cursor is None:
            break
    return found
