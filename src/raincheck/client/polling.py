"""Following a task to its end: by looking at it, at the server's pace, and sooner where the server tells."""

import asyncio
import logging
from collections.abc import AsyncGenerator

from mcp.shared.exceptions import MCPError

from raincheck.client.connection import Lost
from raincheck.client.errors import RequestRefused, ServerUnreachable
from raincheck.client.session import BY_ITSELF, Talk
from raincheck.client.tracker import Held
from raincheck.client.updates import Update

logger = logging.getLogger(__name__)

UNSAID, SHORTEST, LONGEST = 1.0, 0.1, 600.0
"""Seconds between two looks at a task: where the server names none; at least and at most, whatever it names."""

SOONEST = 0.05
"""Seconds between two looks, however often the server tells of changes."""

QUIET = 1.0
"""Seconds without a question after which a crowded client stops to wait for a task that asks by itself."""


async def follow(talk: Talk, held: Held) -> AsyncGenerator[Update]:
    """The task as it is, and again after each change, until it has ended."""
    with held.waiting() as told:
        helping = _Helping(talk, held)
        try:
            seen: Update | None = None
            while True:
                update, looked_at = await talk.look(held), talk.clock.elapsed()
                shown = talk.shown(held, update)
                if shown != seen:
                    seen = shown
                    yield shown
                if update.is_ended:
                    return
                helping.see_to(update)
                await _pause(talk, told, update, looked_at)
                helping.check()
        finally:
            await helping.stop()


async def _pause(talk: Talk, told: asyncio.Event, update: Update, looked_at: float) -> None:
    """Until it should be looked at again: when the server says so, or something has happened."""
    asked = UNSAID if update.poll_after is None else update.poll_after
    waiting = asyncio.ensure_future(told.wait())
    sleeping = asyncio.ensure_future(talk.clock.sleep(min(max(asked, SHORTEST), LONGEST)))
    try:
        await asyncio.wait([waiting, sleeping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        sleeping.cancel()
    too_soon = looked_at + SOONEST - talk.clock.elapsed()
    if too_soon > 0:
        await talk.clock.sleep(too_soon)
    told.clear()


class _Helping:
    """What goes on beside: listening for news, and having questions answered."""

    def __init__(self, talk: Talk, held: Held) -> None:
        self._talk = talk
        self._held = held
        self._listening: asyncio.Task[None] | None = None
        self._attending: dict[str, asyncio.Task[None]] = {}
        self._refused: dict[str, MCPError | RequestRefused] = {}
        self._quiet_since: float | None = None
        """When a look first showed that the task asks nothing, with no question before the user since."""
        self._tells = True

    def see_to(self, update: Update) -> None:
        """Do what the task needs, as it is now."""
        if self._tells and (self._listening is None or self._listening.done()):
            self._listening = asyncio.create_task(self._listen(update))
        asked = self._talk.asked(update)
        for key, error in self._refused.items():
            # Still open, so it was no answer. Otherwise somebody else was quicker.
            if key in asked:
                raise error
        self._refused.clear()
        is_in_the_way = self._talk.is_crowded and self._is_quiet(is_asking=bool(asked or self._held.asked.waited_for))
        for key, job in self._attending.items():
            # Somebody else has answered: whoever thinks about it need not. A server that asks by itself says so itself.
            if key not in asked and (key != BY_ITSELF or is_in_the_way):
                job.cancel()
        for key, question in asked.items():
            if key not in self._attending:
                self._attending[key] = asyncio.create_task(self._talk.attend(self._held, question))

    def _is_quiet(self, *, is_asking: bool) -> bool:
        """Whether the task has asked nothing for so long that it will probably ask nothing soon."""
        now = self._talk.clock.elapsed()
        if is_asking:
            self._quiet_since = None
        elif self._quiet_since is None:
            self._quiet_since = now
        return self._quiet_since is not None and now - self._quiet_since >= QUIET

    def check(self) -> None:
        """Tell what a callback could not answer."""
        for key, job in list(self._attending.items()):
            if job.done():
                del self._attending[key]
                error = None if job.cancelled() else job.exception()
                if isinstance(error, MCPError) or (isinstance(error, RequestRefused) and key != BY_ITSELF):
                    self._refused[key] = error
                elif isinstance(error, Lost | ServerUnreachable):
                    logger.info("task %s: nobody could be asked just now: %s", self._held.task_id, error)
                elif error is not None:
                    raise error

    async def _listen(self, update: Update) -> None:
        try:
            self._tells = await self._talk.listen(self._held, update)
        except Exception as error:  # noqa: BLE001 - it is only for speed: the task is looked at all the same
            logger.debug("task %s: the server tells no news: %r", self._held.task_id, error)

    async def stop(self) -> None:
        if BY_ITSELF in self._attending and self._held.asked.by_hand:
            # The answer is on its way to somebody who is being asked. If that one were to go, so would the question.
            self._talk.leave(self._attending.pop(BY_ITSELF))
        jobs = [*self._attending.values(), *([] if self._listening is None else [self._listening])]
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
