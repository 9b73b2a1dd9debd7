"""Servers as somebody names them in a shell: a URL, a command, or a Unix socket."""

import os
import re
import shlex
import shutil
import sys
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Protocol, TextIO, cast

from mcp.client import Transport
from mcp.client.stdio import StdioServerParameters, stdio_client

from raincheck.cli.endings import Unusable
from raincheck.cli.plain import printable
from raincheck.cli.secrecy import cover
from raincheck.cli.unix_transport import unix_client
from raincheck.cli.url_target import UrlTarget

UNIX = "unix:"

VARIABLE = re.compile(r"\w+=")

LAST_LINES = 8
"""Of what a server said before it ended."""


class Target(Protocol):
    """A server."""

    @property
    def name(self) -> str:
        """What finds it again, on another day and from another folder."""
        ...

    @property
    def shown(self) -> str:
        """What it is called where somebody reads."""
        ...

    ends_with_us: bool
    """Whether it is a process that we start, and that ends when we do."""

    has_secret: bool
    """Whether its name is not all that it takes to reach it, since the address has a secret in it."""

    def connect(self) -> Transport:
        """A new connection."""
        ...

    def cleaned(self, text: str) -> str:
        """What others say of it, without what is secret in its address."""
        ...

    def last_words(self) -> str:
        """What it said last, beside the protocol."""
        ...

    def hint(self) -> str | None:
        """What to do, by what its last answer was."""
        ...


class UnixTarget:
    """A server on a Unix socket."""

    ends_with_us = False
    has_secret = False

    def __init__(self, path: Path) -> None:
        self.shown = f"{UNIX}{path}"
        self.name = f"{UNIX}{path.absolute()}"

    def connect(self) -> Transport:
        return unix_client(self.name.removeprefix(UNIX))

    def last_words(self) -> str:
        return ""

    def hint(self) -> str | None:
        return None

    def cleaned(self, text: str) -> str:
        return text


class CommandTarget:
    """A process that speaks on stdio. It gets the whole environment, as if it were started in the shell."""

    ends_with_us = True
    has_secret = False

    def __init__(self, words: list[str], folder: Path, *, is_heard: bool) -> None:
        self._covered = cover(words)
        self.shown = self._covered.text
        # Where it is started matters as much: it may be told of files beside it.
        self.name = f"cd {shlex.quote(str(folder))} && {shlex.join(words)}"
        self._parameters = StdioServerParameters(
            command=words[0], args=words[1:], env=dict(os.environ), cwd=folder, encoding_error_handler="replace"
        )
        self._is_heard = is_heard
        self._log: IO[str] | None = None

    def connect(self) -> Transport:
        if self._log is None and not self._is_heard:
            self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - it is there for as long as we are
            weakref.finalize(self, self._log.close)
        return stdio_client(self._parameters, errlog=cast("TextIO", self._log or sys.stderr))

    def last_words(self) -> str:
        if self._log is None:
            return ""
        self._log.seek(0)
        lines = [printable(line) for line in self.cleaned(self._log.read()).splitlines() if line.strip()]
        return "\n".join(f"  {line}" for line in lines[-LAST_LINES:])

    def hint(self) -> str | None:
        return None

    def cleaned(self, text: str) -> str:
        return self._covered.clean(text)


def read_target(text: str, headers: Mapping[str, str], *, is_heard: bool = False, is_kept: bool = False) -> Target:
    """The server that is meant. What a command says on stderr is kept for when it fails, or heard at once.

    If its name was kept, it is without what is secret.

    Raises:
        Unusable: it can't be one; it says what to write.
    """
    if text.startswith(("http://", "https://")):
        try:
            return UrlTarget(text, headers, is_kept=is_kept)
        except ValueError as error:
            raise Unusable(f"that is no URL ({error}): mend it") from error
    if headers:
        raise Unusable("headers are for servers with a URL: one that is a command is told by its environment")
    if text.startswith(UNIX):
        path = Path(text.removeprefix(UNIX)).expanduser()
        if not path.exists():
            raise Unusable(f"there is no socket {path.absolute()}: start the server, or mend the path")
        return UnixTarget(path)
    words, folder = _read_command(text)
    _check_command(text, words, folder)
    return CommandTarget(words, folder, is_heard=is_heard)


def _read_command(text: str) -> tuple[list[str], Path]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        # Not repeated: there may be something secret in it.
        raise Unusable(f"the server can't be split into words ({error}): quote it as in a shell") from error
    match words:
        case ["cd", folder, "&&", *command]:
            return command, Path(folder).expanduser().absolute()
        case _:
            return words, Path.cwd()


def _check_command(text: str, words: list[str], folder: Path) -> None:
    what = 'name a server: "raincheck serve server.py", http://127.0.0.1:8000/mcp or unix:/path/of.sock'
    if not words:
        raise Unusable(f"{text!r} names no server: {what}")
    if not folder.is_dir():
        raise Unusable(f"the folder {folder}, where {cover(words).text} is to be started, is not there")
    program = words[0]
    if len(words) == 1 and program.partition(":")[0].endswith((".py", ".yaml", ".yml")):
        raise Unusable(f'{program} is a file, and not a command: write "raincheck serve {program}"')
    if shutil.which(folder / program if os.sep in program else program) is None:
        raise Unusable(
            f"there is no program {cover([program]).text!r} here or on your PATH: {_instead(program) or what}"
        )


def _instead(program: str) -> str | None:
    """What to write for a word that is no program."""
    if VARIABLE.match(program):
        return (
            "a variable is set before raincheck itself, and the server gets it; or by env, as in 'env NAME=… python …'"
        )
    if ":" in program or program.startswith("localhost"):
        return f"write http://{program}"
    return None
