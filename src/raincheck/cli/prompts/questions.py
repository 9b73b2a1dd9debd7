"""Answer the questions of a task: at the terminal or, without one, leave them open so that the task waits.

Open questions are printed with the command that answers them.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from mcp.client import ClientRequestContext
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult

from raincheck.cli.exit_codes import echo_err
from raincheck.cli.output.progress import ProgressDisplay
from raincheck.cli.prompts.arguments import Schema, as_object, describe_argument
from raincheck.cli.prompts.forms import EndOfInput, PromptInterrupt, Terminal, prompt_elicitation
from raincheck.client import Question
from raincheck.operations.describe import printable

SAMPLING = "sampling/createMessage"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenInputRequest:
    """An open question."""

    key: str | None
    """The key that identifies it in an answer; None if the server sent the question itself."""
    method: str
    message: str
    schema: Schema | None = None
    url: str | None = None

    @classmethod
    def from_question(cls, question: Question) -> Self:
        """Convert an open question of a task."""
        schema, url = question.params.get("requestedSchema"), question.params.get("url")
        return cls(
            key=question.key,
            method=question.method,
            message=question.message or question.method,
            schema=as_object(schema) if schema is not None else None,
            url=None if url is None else str(url),
        )

    @classmethod
    def from_elicitation(cls, params: ElicitRequestParams) -> Self:
        """Convert a question that a server sent itself."""
        is_form = isinstance(params, ElicitRequestFormParams)
        return cls(
            key=None,
            method="elicitation/create",
            message=params.message,
            schema=params.requested_schema if is_form else None,
            url=None if is_form else params.url,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "method": self.method,
            "message": self.message,
            "schema": self.schema,
            "url": self.url,
        }

    def describe_fields(self) -> list[str]:
        """Describe the fields that an answer needs."""
        if self.method == SAMPLING:
            return ["text=… (string), the reply of the model"]
        if self.schema is None:
            return []
        required = self.schema.get("required") or ()
        return [
            describe_argument(str(name), self.schema, note="" if name in required else ", optional")
            for name in as_object(self.schema.get("properties"))
        ]


def echo_questions(tool: str, questions: Sequence[OpenInputRequest], make_command: Callable[..., str]) -> None:
    """Print the questions, and the command that answers each. `make_command` builds it from options."""
    for request in questions:
        echo_err(f"{printable(tool)} asks: {printable(request.message)}")
        if request.url is not None:
            echo_err(f"  open {printable(request.url)}")
        for field in request.describe_fields():
            echo_err(f"  {printable(field)}")
        key = ["--key", request.key] if len(questions) > 1 and request.key is not None else []
        values = " name=value …" if request.describe_fields() else ""
        echo_err(f"answer with: {make_command(*key)}{values} (or --decline)")


class ElicitationPrompter:
    """Answers the questions of a server at the terminal. Without one, it leaves them open and reports that."""

    def __init__(self, tool: str, display: ProgressDisplay, terminal: Terminal | None) -> None:
        self._tool = tool
        self._display = display
        self._terminal = terminal
        self.unanswered: asyncio.Future[ElicitRequestParams] = asyncio.get_running_loop().create_future()
        """The first question that was left unanswered."""

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        """Answer a question as the SDK's callback. Never raises, since the server would take an error as the answer."""
        del context
        return await self.prompt(params)

    async def prompt(self, params: ElicitRequestParams) -> ElicitResult:
        """Return the user's answer. It does not return if there is no user to ask."""
        while self._terminal is not None and not self.unanswered.done():
            try:
                await self._terminal.may_prompt.wait()
                async with self._terminal.prompt_lock:
                    with self._display.suspend():
                        return await prompt_elicitation(self._terminal, self._tool, params)
            except PromptInterrupt:
                # If the user keeps waiting after that, the question is asked again.
                continue
            except EndOfInput:
                break
        if not self.unanswered.done():
            self.unanswered.set_result(params)
        return await asyncio.get_running_loop().create_future()
