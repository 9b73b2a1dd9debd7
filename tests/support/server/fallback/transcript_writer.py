"""Writes down what a model says and reads, so that it can be read by people: calls, and the texts that answer them."""

import json
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from tests.support import ROOT
from tests.support.server.example import Shop
from tests.support.server.fallback.clock import LEASED, WatchedClock
from tests.support.server.fallback.hosts import Model, calls_in, fill, first_done, next_call, opened, told
from tests.support.server.transports import Message

FOLDER = ROOT / "tests/server/fallback/transcripts"
REWRITES = "RAINCHECK_WRITE_TRANSCRIPTS"
"""Set this in the environment to write what is said now."""

ID = re.compile(r"[0-9a-f]{44}")
ERROR_ID = re.compile(r"error [0-9a-f]{8}\b")
MOMENT = 0.05
"""Seconds that the server waits for a second question."""

# Half typed, so taken as not typed at all.
jsonschema: Any = import_module("jsonschema")


class Script:
    """A conversation. Ids are numbered as they come up, and time is what the clock says."""

    def __init__(self, model: Model, clock: WatchedClock, tools: Mapping[str, Message]) -> None:
        self.model = model
        self.clock = clock
        self.tools = tools
        self._lines: list[str] = []
        self._ids: dict[str, str] = {}

    def say(self, words: str) -> None:
        """Write a line that is nobody's, for whoever reads it."""
        self._lines.append(f"# {words}\n")

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        passes: float | None = None,
        after: Awaitable[object] | None = None,
    ) -> Message:
        """Call a tool, let so much time pass while it waits, after something else, and write both down."""
        calling = self.model.begin(tool, arguments)
        if passes is not None:
            await self.clock.asleep(45.0)
            if after is not None:
                await after
            self.clock.advance(passes)
        else:
            await first_done(calling, self.clock.asleep(MOMENT))
            if not calling.done():
                self.clock.advance(MOMENT)
        answer = await calling
        self._lines.append(f"> {tool} {json.dumps(arguments or {}, ensure_ascii=False)}\n")
        error = "(error) " if answer.get("isError") else ""
        # What a call has come to may be said before the result that was there already.
        *before, last = answer["content"]
        for block in before:
            self._lines.append(f"{block['text']}\n")
        answer = {**answer, "content": [last]}
        self._lines.append(f"{error}{told(answer)}\n")
        self._check_next(answer)
        return answer

    async def go_on(self, answer: Message, *, passes: float | None = None, **filled: Any) -> Message:
        """Make the next call as it is spelled out, with its placeholders filled in."""
        tool, arguments = next_call(answer)
        return await self.call(tool, fill(arguments, filled), passes=passes)

    def _check_next(self, answer: Message) -> None:
        """Whatever call is spelled out is one that can be made, but for what has to be filled in."""
        for tool, arguments in calls_in(told(answer)):
            assert set(arguments) <= set(self.tools[tool]["inputSchema"]["properties"])
            jsonschema.validate(arguments, self.tools[tool]["inputSchema"])
        structured = answer.get("structuredContent", {})
        if "tasks" in structured:
            # A list: which of them to go on with is for the model to say.
            assert all(task["task_id"] in told(answer) for task in structured["tasks"])
        elif "next" in structured:
            next_call(answer)

    @property
    def text(self) -> str:
        numbered = ID.sub(
            lambda found: self._ids.setdefault(found[0], f"TASK-{len(self._ids) + 1}"), "\n".join(self._lines)
        )
        return ERROR_ID.sub("error ERROR-ID", numbered)


@asynccontextmanager
async def scripted(shop: Shop, clock: WatchedClock, **options: Any) -> AsyncGenerator[Script]:
    way: str = options.pop("way", "memory")
    async with opened(shop, way) as place, place.host(clock=clock, **options) as model:
        yield Script(model, clock, await model.tools())


def timed(**options: Any) -> tuple[Shop, WatchedClock]:
    """A shop whose time goes when it is told to."""
    clock = WatchedClock()
    return Shop(clock=clock, settings=LEASED, **options), clock


def compare(name: str, text: str) -> None:
    """Fail unless this is what was said when it was last looked at."""
    file = FOLDER / f"{name}.txt"
    if os.environ.get(REWRITES):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"if {file.name} is to say this, set {REWRITES}=1, and read it"
