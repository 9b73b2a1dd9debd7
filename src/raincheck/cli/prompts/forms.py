"""What a task asks, asked at the terminal: forms field by field, and pages to be opened.

The person at the terminal: lines that they type, while everything else goes on.

The terminal stays in its usual mode, in which it edits and echoes lines by itself. So there is nothing to put back,
however the program ends.
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

from raincheck.cli.exit_codes import let_go_of_dead_terminals
from raincheck.cli.prompts.arguments import (
    Schema,
    as_object,
    choices_of,
    in_words,
    items_of,
    mismatches,
    read_value,
    titles_of,
    types_of,
)
from raincheck.operations.describe import printable


class Gone(Exception):
    """Whoever was asked has left: the input is at its end."""


class Aborted(Exception):
    """Ctrl-C instead of a line."""


class Terminal:
    """Asks for lines, one at a time."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.turn = asyncio.Lock()
        """Held by whoever asks: one question is asked to its end before the next."""
        self.free = asyncio.Event()
        """Set unless somebody who pressed Ctrl-C is to be asked first what to do."""
        self.free.set()
        self._typed = b""
        self._line: asyncio.Future[str] | None = None

    @staticmethod
    def is_there() -> bool:
        """Whether there is somebody who sees what is asked, and can type."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    def say(self, text: str = "", style: str | None = None) -> None:
        """A line of ours, or of others: nothing in it moves the cursor."""
        indent = text[: len(text) - len(text.lstrip(" "))]
        shown = f"{indent}{printable(text)}"
        self.console.print(shown, style=style, markup=False, highlight=False, soft_wrap=True)

    async def ask(self, prompt: str) -> str:
        """The line that is typed, without the blanks around it.

        Raises:
            Gone: there is nobody any more.
            Aborted: it was not typed to its end.
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
        """Give up the line that is being typed, if there is one. The next is for whoever sets `free` again."""
        self.free.clear()
        self._typed = b""
        if self._line is not None and not self._line.done():
            self.console.print()
            self._line.set_exception(Aborted())

    def _read(self, stdin: int) -> None:
        assert self._line is not None  # noqa: S101 - as long as it is read
        if self._line.done():
            return
        try:
            piece = os.read(stdin, 4_096)
        except OSError:
            let_go_of_dead_terminals()
            piece = b""
        self._typed += piece
        line, end, rest = self._typed.partition(b"\n")
        if end:
            self._typed = rest
            self._line.set_result(line.decode(errors="replace"))
        elif not piece:
            self.console.print()
            self._line.set_exception(Gone())


DECLINE, CANCEL = "/decline", "/cancel"

HOW = f"(instead of an answer: {DECLINE} to say no, {CANCEL} to say neither yes nor no)"


class _Refused(Exception):
    """Whoever was asked does not want to answer."""

    def __init__(self, action: str) -> None:
        super().__init__(action)
        self.result = ElicitResult(action="decline" if action == DECLINE else "cancel")


async def ask_person(terminal: Terminal, tool: str, params: ElicitRequestParams) -> ElicitResult:
    """Ask whoever is at the terminal, and return what they answer.

    Raises:
        Gone, Aborted: they don't.
    """
    terminal.say()
    terminal.say(f"{tool} asks: {params.message}", "bold yellow")
    try:
        if isinstance(params, ElicitRequestFormParams):
            return await _ask_form(terminal, params.requested_schema)
        return await _ask_to_open(terminal, params.url)
    except _Refused as refused:
        return refused.result


async def _ask_form(terminal: Terminal, schema: Schema) -> ElicitResult:
    fields = as_object(schema.get("properties"))
    if not fields:
        is_yes = await _ask_choice(terminal, "yes or no [y/n]:", {"y": True, "yes": True, "n": False, "no": False})
        return ElicitResult(action="accept", content={}) if is_yes else ElicitResult(action="decline")
    terminal.say(HOW, "dim")
    content: dict[str, Any] = {}
    for name, field in fields.items():
        value = await _ask_field(terminal, str(name), as_object(field), schema)
        if value is not None:
            content[str(name)] = value
    return ElicitResult(action="accept", content=content)


async def _ask_field(terminal: Terminal, name: str, field: Schema, root: Schema) -> Any:  # noqa: ANN401 - whatever is asked for
    """The value of a field; None if it may be left out, and is."""
    if field.get("description"):
        terminal.say(str(field["description"]), "dim")
    several = "array" in types_of(field, root)
    choices, titles = _choices(field, root, several=several)
    for number, title in enumerate(titles, 1):
        terminal.say(f"  {number}) {title}")
    while True:
        text = await _line(terminal, _prompt(name, field, root, len(choices), several=several))
        if not text and "default" in field:
            return field["default"]
        if not text and name not in (root.get("required") or []):
            return None
        value = _value_of(text, field, root, choices, titles, several=several)
        # Alone, so that those which are still to be asked for are not missed.
        wrong = mismatches({name: value}, {**root, "properties": {name: field}, "required": []})
        if not wrong:
            return value
        for _, message in wrong:
            terminal.say(message, "red")


def _choices(field: Schema, root: Schema, *, several: bool) -> tuple[list[Any], list[str]]:
    of = items_of(field, root) if several else field
    return choices_of(of, root), titles_of(of, root)


def _prompt(name: str, field: Schema, root: Schema, choices: int, *, several: bool) -> str:
    title = str(field.get("title") or name)
    what = in_words(field, root)
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
    """What Enter stands for. Blanks would not be seen as they are."""
    return default if isinstance(default, str) and default.strip() else json.dumps(default)


def _value_of(text: str, field: Schema, root: Schema, choices: list[Any], titles: list[str], *, several: bool) -> Any:  # noqa: ANN401 - whatever is asked for
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
    return read_value(text, field, root)


async def _ask_to_open(terminal: Terminal, url: str) -> ElicitResult:
    terminal.say(f"It wants you to open a page of {urlsplit(url).hostname or 'an unknown host'}:")
    terminal.say(f"  {url}")
    keys = {"o": "open", "i": "itself", "d": DECLINE, "c": CANCEL}
    choice = await _ask_choice(terminal, "[o]pen it here, [i] opened it myself, [d]ecline, [c]ancel:", keys)
    if choice in (DECLINE, CANCEL):
        raise _Refused(choice)
    if choice == "open" and not webbrowser.open(url):
        terminal.say("there is no browser to open it with: copy the address", "red")
    return ElicitResult(action="accept")


async def _ask_choice(terminal: Terminal, prompt: str, choices: Mapping[str, Any]) -> Any:  # noqa: ANN401 - one of them
    while True:
        text = (await _line(terminal, prompt)).lower()
        if text in choices:
            return choices[text]


async def _line(terminal: Terminal, prompt: str) -> str:
    text = await terminal.ask(prompt)
    if text in (DECLINE, CANCEL):
        raise _Refused(text)
    return text
