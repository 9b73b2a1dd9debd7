"""Talking with a server about tasks: in whichever way it does, and again when the connection broke."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from raincheck.client.connection import Connection
from raincheck.client.errors import BadAnswer, TaskCancelled
from raincheck.client.protocols.base import Answers, Begun, Call, Listing, Tier, checking
from raincheck.client.protocols.fallback import TierPlain
from raincheck.client.protocols.v2025 import Tier2025
from raincheck.client.protocols.v2026 import Tier2026
from raincheck.client.saved_calls import TierName
from raincheck.client.tracker import Heard, Held
from raincheck.client.transport_errors import loss_of
from raincheck.client.updates import Question, Update
from raincheck.clock import Clock
from raincheck.core.lifecycle import Status
from raincheck.wire.v2026 import EXTENSION

T = TypeVar("T")

BY_ITSELF = ""
"""The key of what a server asks by itself."""

MOST_STREAMS = 16
"""Requests of one kind that may last. Over HTTP each takes one of the hundred connections that there are."""


class Talk:
    """With one server."""

    def __init__(self, connection: Connection, heard: Heard, can_ask: Callable[[str], bool], clock: Clock) -> None:
        self.connection = connection
        self.heard = heard
        self.clock = clock
        self._can_ask = can_ask
        self._listing = Listing()
        self._left: set[asyncio.Task[None]] = set()
        self._listening = asyncio.Semaphore(MOST_STREAMS)
        self._attending = asyncio.Semaphore(MOST_STREAMS)
        self._tiers: dict[TierName, Tier] = {
            "2026-07-28": Tier2026(),
            "2025-11-25": Tier2025(heard, self._listing),
            "plain": TierPlain(),
        }

    @property
    def is_crowded(self) -> bool:
        """Whether there are tasks that have to wait before anybody can be asked for them."""
        return self._attending.locked()

    def leave(self, job: asyncio.Task[None]) -> None:
        """Let a job go on for which nobody waits, until the end of the connection."""
        self._left.add(job)
        job.add_done_callback(self._left.discard)

    async def close(self) -> None:
        """Let the connection go, and whatever goes on over it."""
        await self.connection.close()
        for job in self._left:
            job.cancel()
        await asyncio.gather(*self._left, return_exceptions=True)

    async def takes_keys(self, client: Client, tool: str) -> bool:
        """Whether the server says that it begins a call of this tool once, by its key."""
        try:
            return (await self._listing.find(client, tool)).takes_keys
        except MCPError as error:
            if loss_of(error) is not None:
                raise
            # One that lists nothing can be called all the same.
            return False
        except BadAnswer:
            # Likewise: what can't be read promises nothing.
            return False

    async def begin(self, client: Client, call: Call) -> Begun:
        return await self._tiers[_tier_of(client)].begin(client, call)

    async def look(self, held: Held) -> Update:
        """The task as the server shows it."""
        update = await self._ask(held, lambda tier, client: tier.look(client, held))
        if update.task_id != held.task_id:
            raise BadAnswer(f"the server was asked for task {held.task_id!r}, and tells of {update.task_id!r}")
        return update

    def shown(self, held: Held, update: Update) -> Update:
        """An update without what has been answered: to be shown that again would be to be asked again."""
        is_given = held.consulting.is_given
        return replace(update, questions=tuple(one for one in update.questions if not is_given(one.key)))

    async def fetch(self, held: Held, update: Update) -> CallToolResult:
        """The result of a task that has ended.

        Raises:
            MCPError: it has failed.
            TaskCancelled: it was cancelled.
        """
        if update.status is Status.CANCELLED:
            raise TaskCancelled(held.task_id, update.message)

        async def fetch(tier: Tier, client: Client) -> CallToolResult:
            result = await tier.fetch(client, held, update)
            if not result.is_error:
                # As the SDK does where a call is answered at once.
                with checking(held.slip.tool):
                    await client.session.validate_tool_result(held.slip.tool, result)
            return result

        return await self._ask(held, fetch)

    async def answer(self, held: Held, answers: Answers) -> None:
        await self._ask(held, lambda tier, client: tier.answer(client, held, answers))
        held.changed()

    async def cancel(self, held: Held) -> None:
        await self._ask(held, lambda tier, client: tier.cancel(client, held))
        held.changed()

    def asked(self, update: Update) -> dict[str, Question | None]:
        """What somebody is to be asked, by its key; None for what the server asks by itself."""
        if update.status is not Status.INPUT_REQUIRED:
            return {}
        if update.asks_itself:
            return {BY_ITSELF: None} if len(self.unanswered(update)) < max(len(update.questions), 1) else {}
        return {question.key: question for question in update.questions if self._can_ask(question.method)}

    async def attend(self, held: Held, question: Question | None) -> None:
        """Have somebody asked, once, whoever else waits for it."""

        async def attend(client: Client) -> bool:
            return await self._tier(client, held).attend(client, held, question)

        if question is None:
            async with held.attending, self._attending:
                is_changed = await self.connection.once(attend)
        else:
            # Whoever was asked need not be asked again when the answer is sent again.
            is_changed = await self.connection.request(attend, within=None)
        if is_changed:
            held.changed()

    async def listen(self, held: Held, update: Update) -> bool:
        """Have the server tell of changes. Returns whether it is any use to do it again."""
        if self._listening.locked():
            return True
        async with self._listening:
            client = await self.connection.client()
            return await self._tier(client, held).listen(client, held, update)

    def unanswered(self, update: Update) -> tuple[Question, ...]:
        """What of the questions nobody will be asked."""
        return tuple(question for question in update.questions if not self._can_ask(question.method))

    async def _ask(self, held: Held, ask: Callable[[Tier, Client], Awaitable[T]]) -> T:
        return await self.connection.request(lambda client: ask(self._tier(client, held), client))

    def _tier(self, client: Client, held: Held) -> Tier:
        return self._tiers[_tier_of(client, held.slip.tier)]


def _tier_of(client: Client, was: TierName | None = None) -> TierName:
    """How tasks are talked about on this connection. A server may be another version when it comes back."""
    can, version = client.server_capabilities, client.protocol_version
    if version == "2026-07-28" and (EXTENSION in (can.extensions or {}) or was == version):
        return "2026-07-28"
    calls = None if can.tasks is None or can.tasks.requests is None else can.tasks.requests.tools
    if version == "2025-11-25" and (calls is not None or was == version):
        return "2025-11-25"
    # One that does not say so may have tasks all the same: the slip tells.
    return "plain"
