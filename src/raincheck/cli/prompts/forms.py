"""Ask a task's questions at the terminal: forms field by field, and pages to open.

The user's lines are read while the event loop runs on. The terminal stays in its usual mode, in which it edits and
echoes lines itself. So there is nothing to restore, however the program ends.
"""

import asyncio
import json
import os
import sys
import webbrowser
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from mcp_types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult
from rich.console import Console

from raincheck.cli.exit_codes import redirect_dead_terminals
from raincheck.cli.prompts.arguments import (
    Schema,
    as_object,
    choices_of,
    describe_schema,
    items_of,
    parse_value,
    titles_of,
    types_of,
    validation_errors,
)
from raincheck.operations.describe import printable


class EndOfInput(Exception):
    """The input has ended: there is no user to ask any more."""


class PromptInterrupt(Exception):
    """The user pressed Ctrl-C instead of entering a line."""


class Terminal:
    """Prompts for lines, one at a time."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.prompt_lock = asyncio.Lock()
        """Held while a question is asked: a question is asked to its end before the next."""
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
        shown = f"{indent}{printable(text)}"
        self.console.print(shown, style=style, markup=False, highlight=False, soft_wrap=True)

    async def ask(self, prompt: str) -> str:
        """Prompt for a line, and return it without surrounding blanks.

        Raises:
            EndOfInput: the input has ended.
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
            piece = os.read(stdin, 4_096)
        except OSError:
            redirect_dead_terminals()
            piece = b""
        self._typed += piece
        line, end, rest = self._typed.partition(b"\n")
        if end:
            self._typed = rest
            self._line.set_result(line.decode(errors="replace"))
        elif not piece:
            self.console.print()
            self._line.set_exception(EndOfInput())


DECLINE, CANCEL = "/decline", "/cancel"

HOW = f"(instead of an answer: {DECLINE} to say no, {CANCEL} to say neither yes nor no)"


class _FormDismissal(Exception):
    """The user does not want to answer."""

    def __init__(self, action: str) -> None:
        super().__init__(action)
        self.result = ElicitResult(action="decline" if action == DECLINE else "cancel")


async def prompt_elicitation(terminal: Terminal, tool: str, params: ElicitRequestParams) -> ElicitResult:
    """Ask the user at the terminal, and return the answer.

    Raises:
        EndOfInput, PromptInterrupt: the user did not answer.
    """
    terminal.print_line()
    terminal.print_line(f"{tool} asks: {params.message}", "bold yellow")
    try:
        if isinstance(params, ElicitRequestFormParams):
            return await _ask_form(terminal, params.requested_schema)
        return await _ask_to_open(terminal, params.url)
    except _FormDismissal as refused:
        return refused.result


async def _ask_form(terminal: Terminal, schema: Schema) -> ElicitResult:
    fields = as_object(schema.get("properties"))
    if not fields:
        is_yes = await _ask_choice(terminal, "yes or no [y/n]:", {"y": True, "yes": True, "n": False, "no": False})
        return ElicitResult(action="accept", content={}) if is_yes else ElicitResult(action="decline")
    terminal.print_line(HOW, "dim")
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
    several = "array" in types_of(field, root)
    choices, titles = _choices(field, root, several=several)
    for number, title in enumerate(titles, 1):
        terminal.print_line(f"  {number}) {title}")
    while True:
        text = await _line(terminal, _prompt(name, field, root, len(choices), several=several))
        if not text and "default" in field:
            return field["default"]
        if not text and name not in (root.get("required") or []):
            return None
        value = _value_of(text, field, root, choices, titles, several=several)
        # Validated alone, so that fields not asked yet are not reported as missing.
        wrong = validation_errors({name: value}, {**root, "properties": {name: field}, "required": []})
        if not wrong:
            return value
        for _, message in wrong:
            terminal.print_line(message, "red")


def _choices(field: Schema, root: Schema, *, several: bool) -> tuple[list[Any], list[str]]:
    of = items_of(field, root) if several else field
    return choices_of(of, root), titles_of(of, root)


def _prompt(name: str, field: Schema, root: Schema, choices: int, *, several: bool) -> str:
    title = str(field.get("title") or name)
    what = describe_schema(field, root)
    if choices:
        what = f"numbers from 1 to {choices}, with commas" if several else f"a number from 1 to {choices}"
    elif "boolean" in types_of(field, root):
        what = "y or n"
    elif several:
        what = f"{what}, with commas"
    if "default" in field:
        what += f"; Enter: {_shown(field['default'])}"
    elif name not in (root.get("required") or []):
        what += "; Enter: none"
    return f"{title} ({what}):"


def _shown(default: object) -> str:
    """Format a default value. Blank text is quoted so that it is visible."""
    return default if isinstance(default, str) and default.strip() else json.dumps(default)


def _value_of(text: str, field: Schema, root: Schema, choices: list[Any], titles: list[str], *, several: bool) -> Any:  # noqa: ANN401 - any type that the form asks for
    if several:
        items = [part.strip() for part in text.split(",") if part.strip()]
        return [_one_of(part, items_of(field, root), root, choices, titles) for part in items]
    return _one_of(text, field, root, choices, titles)


def _one_of(text: str, field: Schema, root: Schema, choices: list[Any], titles: list[str]) -> Any:  # noqa: ANN401 - likewise
    if text.isdecimal() and 1 <= int(text) <= len(choices):
        return choices[int(text) - 1]
    called = {title.lower(): choice for title, choice in zip(titles, choices, strict=True)}
    if text.lower() in called:
        return called[text.lower()]
    return parse_value(text, field, root)


async def _ask_to_open(terminal: Terminal, url: str) -> ElicitResult:
    terminal.print_line(f"It wants you to open a page of {urlsplit(url).hostname or 'an unknown host'}:")
    terminal.print_line(f"  {url}")
    keys = {"o": "open", "i": "itself", "d": DECLINE, "c": CANCEL}
    choice = await _ask_choice(terminal, "[o]pen it here, [i] opened it myself, [d]ecline, [c]ancel:", keys)
    if choice in (DECLINE, CANCEL):
        raise _FormDismissal(choice)
    if choice == "open" and not webbrowser.open(url):
        terminal.print_line("there is no browser to open it with: copy the address", "red")
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
