"""Who answers what a task asks: the person at the terminal, or nobody, and then the task waits.

What a task asks while nobody is there to answer: told together with how to answer it.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from mcp.client import ClientRequestContext
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult

from raincheck.cli.exit_codes import tell
from raincheck.cli.output.progress import Shown
from raincheck.cli.prompts.arguments import Schema, as_object, explain
from raincheck.cli.prompts.forms import Aborted, Gone, Terminal, ask_person
from raincheck.client import Question
from raincheck.operations.describe import printable

SAMPLING = "sampling/createMessage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question."""

    key: str | None
    """What names it in an answer; None where the server asks by itself."""
    method: str
    message: str
    schema: Schema | None = None
    url: str | None = None

    @classmethod
    def of(cls, question: Question) -> Self:
        """One that a task has open."""
        schema, url = question.params.get("requestedSchema"), question.params.get("url")
        return cls(
            key=question.key,
            method=question.method,
            message=question.message or question.method,
            schema=as_object(schema) if schema is not None else None,
            url=None if url is None else str(url),
        )

    @classmethod
    def by_server(cls, params: ElicitRequestParams) -> Self:
        """One that a server asked by itself."""
        is_form = isinstance(params, ElicitRequestFormParams)
        return cls(
            key=None,
            method="elicitation/create",
            message=params.message,
            schema=params.requested_schema if is_form else None,
            url=None if is_form else params.url,
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "method": self.method,
            "message": self.message,
            "schema": self.schema,
            "url": self.url,
        }

    def fields(self) -> list[str]:
        """What an answer has to have, in words."""
        if self.method == SAMPLING:
            return ["text=… (string), what a model would reply"]
        if self.schema is None:
            return []
        required = self.schema.get("required") or ()
        return [
            explain(str(name), self.schema, more="" if name in required else ", may be left out")
            for name in as_object(self.schema.get("properties"))
        ]


def tell_questions(tool: str, questions: Sequence[Asked], answer: Callable[..., str]) -> None:
    """Say what is asked, and what to type. `answer` makes the command, with options."""
    for asked in questions:
        tell(f"{printable(tool)} asks: {printable(asked.message)}")
        if asked.url is not None:
            tell(f"  open {printable(asked.url)}")
        for field in asked.fields():
            tell(f"  {printable(field)}")
        key = ["--key", asked.key] if len(questions) > 1 and asked.key is not None else []
        values = " name=value …" if asked.fields() else ""
        tell(f"answer with: {answer(*key)}{values} (or --decline)")


class Asker:
    """Takes the questions of a server. Without a terminal it leaves them open, and tells that it did."""

    def __init__(self, tool: str, shown: Shown, terminal: Terminal | None) -> None:
        self._tool = tool
        self._shown = shown
        self._terminal = terminal
        self.left_open: asyncio.Future[ElicitRequestParams] = asyncio.get_running_loop().create_future()
        """The first question that nobody answered."""

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        """What the SDK calls. A question that nobody answers never returns: an error would be an answer, too."""
        del context
        return await self.answer(params)

    async def answer(self, params: ElicitRequestParams) -> ElicitResult:
        """What the person answers. It does not return if there is nobody."""
        while self._terminal is not None and not self.left_open.done():
            try:
                await self._terminal.free.wait()
                async with self._terminal.turn:
                    with self._shown.aside():
                        return await ask_person(self._terminal, self._tool, params)
            except Aborted:
                # If the work goes on after that, it is asked again.
                continue
            except Gone:
                break
        if not self.left_open.done():
            self.left_open.set_result(params)
        return await asyncio.get_running_loop().create_future()
