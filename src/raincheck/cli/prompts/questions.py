"""Ask a task's questions at the terminal: forms field by field, and pages to open. Without one, they stay open.

The user's lines are read without blocking the event loop. The terminal stays in its usual mode, in which it edits and
echoes lines itself, so there is nothing to restore, however the program ends.
"""

import asyncio
import json
import os
import sys
import webbrowser
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from mcp.client import ClientRequestContext
from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult
from rich.console import Console

from raincheck.cli.exit_codes import redirect_dead_terminals
from raincheck.cli.output.progress import ProgressDisplay
from raincheck.cli.prompts.arguments import (
    Schema,
    choices_of,
    describe_argument,
    describe_schema,
    items_of,
    parse_value,
    titles_of,
    types_of,
    validation_errors,
)
from raincheck.client import Question
from raincheck.operations.describe import printable
from raincheck.wire.fields import as_object

ELICITATION, SAMPLING = "elicitation/create", "sampling/createMessage"


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
            method=ELICITATION,
            message=params.message,
            schema=params.requested_schema if is_form else None,
            url=None if is_form else params.url,
        )

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


class PromptInterrupt(Exception):
    """The user pressed Ctrl-C instead of entering a line."""


class Terminal:
    """Prompts for lines, one at a time."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.prompt_lock = asyncio.Lock()
        """Held while a question is asked, so that each question is finished before the next."""
        self.may_prompt = asyncio.Event()
        """Cleared after Ctrl-C, until the user has been asked what to do."""
        self.may_prompt.set()
        self._typed = b""
        self._line: asyncio.Future[str] | None = None

    @staticmethod
    def is_interactive() -> bool:
        """Return whether a user can see prompts and type."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    def print_line(self, text: str = "", style: str | None = None) -> None:
        """Print a line with untrusted text escaped, so that it can't move the cursor."""
        indent = text[: len(text) - len(text.lstrip(" "))]
        line = f"{indent}{printable(text)}"
        self.console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)

    async def ask(self, prompt: str) -> str:
        """Prompt for a line, and return it without surrounding blanks.

        Raises:
            EOFError: the input has ended.
            PromptInterrupt: the line was not completed.
        """
        self.console.print(f"{printable(prompt)} ", end="", style="bold", markup=False, highlight=False, soft_wrap=True)
        loop, stdin = asyncio.get_running_loop(), sys.stdin.fileno()
        self._line = loop.create_future()
        loop.add_reader(stdin, self._read, stdin)
        try:
            return (await self._line).strip()
        finally:
            loop.remove_reader(stdin)
            self._line = None

    def abort(self) -> None:
        """Abort the line that is being typed, if any. Prompts wait until `may_prompt` is set again."""
        self.may_prompt.clear()
        self._typed = b""
        if self._line is not None and not self._line.done():
            self.console.print()
            self._line.set_exception(PromptInterrupt())

    def _read(self, stdin: int) -> None:
        assert self._line is not None  # noqa: S101 - set while the reader is registered
        if self._line.done():
            return
        try:
            chunk = os.read(stdin, 4_096)
        except OSError:
            redirect_dead_terminals()
            chunk = b""
        self._typed += chunk
        line, end, rest = self._typed.partition(b"\n")
        if end:
            self._typed = rest
            self._line.set_result(line.decode(errors="replace"))
        elif not chunk:
            self.console.print()
            self._line.set_exception(EOFError())


DECLINE, CANCEL = "/decline", "/cancel"

HELP = f"(instead of an answer: {DECLINE} to decline, {CANCEL} to dismiss the question)"


class _FormDismissal(Exception):
    """The user does not want to answer, and entered `DECLINE` or `CANCEL`."""


async def prompt_elicitation(terminal: Terminal, tool: str, params: ElicitRequestParams) -> ElicitResult:
    """Ask the user at the terminal, and return the answer.

    Raises:
        EOFError, PromptInterrupt: the user did not answer.
    """
    terminal.print_line()
    terminal.print_line(f"{tool} asks: {params.message}", "bold yellow")
    try:
        if isinstance(params, ElicitRequestFormParams):
            return await _ask_form(terminal, params.requested_schema)
        return await _ask_to_open(terminal, params.url)
    except _FormDismissal as dismissal:
        return ElicitResult(action="decline" if dismissal.args == (DECLINE,) else "cancel")


async def _ask_form(terminal: Terminal, schema: Schema) -> ElicitResult:
    fields = as_object(schema.get("properties"))
    if not fields:
        is_yes = await _ask_choice(terminal, "yes or no [y/n]:", {"y": True, "yes": True, "n": False, "no": False})
        return ElicitResult(action="accept", content={}) if is_yes else ElicitResult(action="decline")
    terminal.print_line(HELP, "dim")
    content: dict[str, Any] = {}
    for name, field in fields.items():
        value = await _ask_field(terminal, str(name), as_object(field), schema)
        if value is not None:
            content[str(name)] = value
    return ElicitResult(action="accept", content=content)


async def _ask_field(terminal: Terminal, name: str, field: Schema, root: Schema) -> Any:  # noqa: ANN401 - any type that the form asks for
    """Return the value of a field; None if it is optional and was left out."""
    if field.get("description"):
        terminal.print_line(str(field["description"]), "dim")
    is_list = "array" in types_of(field, root)
    item = items_of(field, root) if is_list else field
    titles = titles_of(item, root)
    for number, title in enumerate(titles, 1):
        terminal.print_line(f"  {number}) {title}")
    while True:
        text = await _line(terminal, _prompt(name, field, root, len(titles), is_list=is_list))
        if not text and "default" in field:
            return field["default"]
        if not text and name not in (root.get("required") or []):
            return None
        texts = [part.strip() for part in text.split(",") if part.strip()] if is_list else [text]
        values = [_parse_choice(part, item, root, titles) for part in texts]
        value = values if is_list else values[0]
        # Validated alone, so that fields not asked yet are not reported as missing.
        errors = validation_errors({name: value}, {**root, "properties": {name: field}, "required": []})
        if not errors:
            return value
        for _, message in errors:
            terminal.print_line(message, "red")


def _prompt(name: str, field: Schema, root: Schema, choices: int, *, is_list: bool) -> str:
    hint = describe_schema(field, root)
    if choices:
        hint = f"numbers from 1 to {choices}, separated by commas" if is_list else f"a number from 1 to {choices}"
    elif "boolean" in types_of(field, root):
        hint = "y or n"
    elif is_list:
        hint = f"{hint}, separated by commas"
    if "default" in field:
        default = field["default"]
        # Blank text is quoted so that it is visible.
        hint += f"; Enter: {default if isinstance(default, str) and default.strip() else json.dumps(default)}"
    elif name not in (root.get("required") or []):
        hint += "; Enter: none"
    return f"{field.get('title') or name} ({hint}):"


def _parse_choice(text: str, item: Schema, root: Schema, titles: list[str]) -> Any:  # noqa: ANN401 - any type that the form asks for
    choices = choices_of(item, root)
    if text.isdecimal() and 1 <= int(text) <= len(choices):
        return choices[int(text) - 1]
    by_title = {title.lower(): choice for title, choice in zip(titles, choices, strict=True)}
    return by_title[text.lower()] if text.lower() in by_title else parse_value(text, item, root)


async def _ask_to_open(terminal: Terminal, url: str) -> ElicitResult:
    terminal.print_line(f"Please open a page on {urlsplit(url).hostname or 'an unknown host'}:")
    terminal.print_line(f"  {url}")
    keys = {"o": "open", "i": "itself", "d": DECLINE, "c": CANCEL}
    choice = await _ask_choice(terminal, "[o]pen it here, [i] opened it myself, [d]ecline, [c]ancel:", keys)
    if choice in (DECLINE, CANCEL):
        raise _FormDismissal(choice)
    if choice == "open" and not webbrowser.open(url):
        terminal.print_line("no browser is available: copy the address", "red")
    return ElicitResult(action="accept")


async def _ask_choice(terminal: Terminal, prompt: str, choices: Mapping[str, Any]) -> Any:  # noqa: ANN401 - one of them
    while True:
        text = (await _line(terminal, prompt)).lower()
        if text in choices:
            return choices[text]


async def _line(terminal: Terminal, prompt: str) -> str:
    text = await terminal.ask(prompt)
    if text in (DECLINE, CANCEL):
        raise _FormDismissal(text)
    return text


class ElicitationPrompter:
    """Answers the questions of a server at the terminal. Without one, it leaves them open and reports that."""

    def __init__(self, tool: str, display: ProgressDisplay, terminal: Terminal | None) -> None:
        self._tool = tool
        self._display = display
        self._terminal = terminal
        self.unanswered: asyncio.Future[ElicitRequestParams] = asyncio.get_running_loop().create_future()
        """The first question that was left unanswered."""

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        """Return the user's answer, as the SDK's callback. It does not return if there is no user to ask.

        Never raises, since the server would take an error as the answer.
        """
        del context
        while self._terminal is not None and not self.unanswered.done():
            try:
                await self._terminal.may_prompt.wait()
                async with self._terminal.prompt_lock:
                    with self._display.suspend():
                        return await prompt_elicitation(self._terminal, self._tool, params)
            except PromptInterrupt:
                # If the user keeps waiting after that, the question is asked again.
                continue
            except EOFError:
                break
        if not self.unanswered.done():
            self.unanswered.set_result(params)
        return await asyncio.get_running_loop().create_future()
