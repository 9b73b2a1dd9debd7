"""Records a model's calls and the texts of their answers in a transcript for people to read."""

import json
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from tests.support import ROOT
from tests.support.server.example import LONG_LEASE, ExampleServer
from tests.support.server.fallback.hosts import (
    Model,
    fill,
    find_calls,
    hosted_server,
    model_text,
    next_call,
    wait_for_first,
)
from tests.support.server.transports import Message
from tests.support.watched_clock import WatchedClock

FOLDER = ROOT / "tests/server/fallback/transcripts"
REWRITES = "RAINCHECK_WRITE_TRANSCRIPTS"
"""Environment variable that makes the tests rewrite the transcripts."""

ID = re.compile(r"[0-9a-f]{44}")
ERROR_ID = re.compile(r"error [0-9a-f]{8}\b")
MOMENT = 0.05
"""Seconds that the server waits for further questions."""

# jsonschema is only partly typed, so it is used as untyped.
jsonschema: Any = import_module("jsonschema")


class Script:
    """A conversation. Ids are numbered in order of appearance, and times are those of the clock."""

    def __init__(self, model: Model, clock: WatchedClock, tools: Mapping[str, Message]) -> None:
        self.model = model
        self.clock = clock
        self.tools = tools
        self._lines: list[str] = []
        self._ids: dict[str, str] = {}

    def comment(self, text: str) -> None:
        """Write a comment for the reader."""
        self._lines.append(f"# {text}\n")

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        passes: float | None = None,
        after: Awaitable[object] | None = None,
    ) -> Message:
        """Call a tool, and record the call and its answer. While it waits, await `after` and advance the clock."""
        calling = self.model.begin(tool, arguments)
        if passes is not None:
            await self.clock.asleep(45.0)
            if after is not None:
                await after
            self.clock.advance(passes)
        else:
            await wait_for_first(calling, self.clock.asleep(MOMENT))
            if not calling.done():
                self.clock.advance(MOMENT)
        answer = await calling
        self._lines.append(f"> {tool} {json.dumps(arguments or {}, ensure_ascii=False)}\n")
        error = "(error) " if answer.get("isError") else ""
        # A note may precede a result that was stored before.
        *before, last = answer["content"]
        for block in before:
            self._lines.append(f"{block['text']}\n")
        answer = {**answer, "content": [last]}
        self._lines.append(f"{error}{model_text(answer)}\n")
        self._check_next(answer)
        return answer

    async def call_next(self, answer: Message, *, passes: float | None = None, **filled: Any) -> Message:
        """Make the next call that an answer names, with its placeholders filled in."""
        tool, arguments = next_call(answer)
        return await self.call(tool, fill(arguments, filled), passes=passes)

    def _check_next(self, answer: Message) -> None:
        """Check that every call in a text is valid, except for its placeholders."""
        for tool, arguments in find_calls(model_text(answer)):
            assert set(arguments) <= set(self.tools[tool]["inputSchema"]["properties"])
            jsonschema.validate(arguments, self.tools[tool]["inputSchema"])
        structured = answer.get("structuredContent", {})
        if "tasks" in structured:
            # A list, from which the model chooses a task.
            assert all(task["task_id"] in model_text(answer) for task in structured["tasks"])
        elif "next" in structured:
            next_call(answer)

    @property
    def text(self) -> str:
        numbered = ID.sub(
            lambda found: self._ids.setdefault(found[0], f"TASK-{len(self._ids) + 1}"), "\n".join(self._lines)
        )
        return ERROR_ID.sub("error ERROR-ID", numbered)


@asynccontextmanager
async def connected_script(server: ExampleServer, clock: WatchedClock, **options: Any) -> AsyncGenerator[Script]:
    way: str = options.pop("way", "memory")
    async with hosted_server(server, way) as hosts, hosts.host(clock=clock, **options) as model:
        yield Script(model, clock, await model.tools())


def server_with_clock(**options: Any) -> tuple[ExampleServer, WatchedClock]:
    """A server with a manually advanced clock."""
    clock = WatchedClock()
    return ExampleServer(clock=clock, settings=LONG_LEASE, **options), clock


def compare(name: str, text: str) -> None:
    """Fail unless the text equals the stored transcript."""
    file = FOLDER / f"{name}.txt"
    if os.environ.get(REWRITES):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"if {file.name} is to say this, set {REWRITES}=1, and read it"
