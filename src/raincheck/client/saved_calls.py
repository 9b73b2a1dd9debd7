"""The task book: a file of slips, so that a caller that crashed finds its tasks again.

Slips: what it takes to find a task again, after a crash or on another day.
"""

import asyncio
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args

from raincheck.errors import ConfigurationError, InvalidValue
from raincheck.stores.sql import load_queries
from raincheck.tracebacks import text_logger

TierName = Literal["2026-07-28", "2025-11-25", "plain"]
"""How a task is talked about: in the words of a version of the protocol, or with tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slip:
    """A task of a server.

    It holds no password and no token: who has it needs to be let in by the server all the same. A server that lets
    in everybody tells callers apart by nothing else than the ids that they have, so keep it as you would keep those.
    """

    server: str
    """The server's address, or the command that runs it."""
    task_id: str
    tool: str
    tier: TierName
    tools: dict[str, str] = field(default_factory=dict[str, str])
    """The names of the tools that go on with the task, for a caller without tasks."""
    taken_at: str = ""
    """When the caller got it, by its own clock."""

    def dump(self) -> str:
        """The slip as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def load(cls, text: str) -> Self:
        """The slip that `dump` made this text of.

        Raises:
            InvalidValue: it did not.
        """
        try:
            slip = cls(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise InvalidValue(f"{text[:80]!r} is no slip of a task: {error}") from error
        tools: Any = slip.tools
        values = [slip.server, slip.task_id, slip.tool, slip.taken_at]
        if isinstance(tools, dict):
            values += [*slip.tools, *slip.tools.values()]
        is_text = all(isinstance(value, str) for value in values)  # pyright: ignore[reportUnnecessaryIsInstance] - of JSON
        if slip.tier not in get_args(TierName) or not isinstance(tools, dict) or not is_text:
            raise InvalidValue(f"{text[:80]!r} is no slip of a task that this version can read")
        return slip


logger = text_logger(__name__)

T = TypeVar("T")

LOCK_TIMEOUT = 10.0

_MARK = 0x736C6970
"""What says in the file's header that it is a book: `slip`, as `write_mark` writes it."""

_QUERIES = load_queries(files("raincheck.client") / "saved_calls.sql")


class TaskBook:
    """Keeps slips until their results have been fetched. Several processes may share one.

    `TaskClient(server, book=TaskBook("calls.book"))` writes into it by itself. The file is its owner's alone.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    async def add(self, slip: Slip) -> None:
        """Keep a slip. When this returns, it is on the disk."""
        row = {"task_id": slip.task_id, "server": slip.server, "slip": slip.dump()}
        await self._do(lambda book: book.execute(_QUERIES["put"], row))

    async def remove(self, slip: Slip) -> None:
        """Forget a slip."""
        row = {"task_id": slip.task_id, "server": slip.server}
        await self._do(lambda book: book.execute(_QUERIES["remove"], row))

    async def slips(self, server: str | None = None) -> list[Slip]:
        """The slips that are kept, of one server or of all, oldest first."""
        if not await asyncio.to_thread(self.path.exists):
            return []
        rows = await self._do(lambda book: book.execute(_QUERIES["list_slips"], {"server": server}).fetchall())
        return [slip for (text,) in rows if (slip := _read(text)) is not None]

    async def find(self, task_id: str) -> Slip | None:
        """The slip of a task."""
        return next((slip for slip in await self.slips() if slip.task_id == task_id), None)

    async def _do(self, do: Callable[[sqlite3.Connection], T]) -> T:
        # In a thread, and anew each time: it is seldom, and nothing is to be held open meanwhile.
        return await asyncio.to_thread(self._in_transaction, do)

    def _in_transaction(self, do: Callable[[sqlite3.Connection], T]) -> T:
        try:
            self.path.touch(mode=0o600)
            with closing(sqlite3.connect(self.path, timeout=LOCK_TIMEOUT)) as book, book:
                self._open(book)
                if self.path.stat().st_mode & 0o077:
                    # An id may be all that it takes to get at a task.
                    self.path.chmod(0o600)
                return do(book)
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(f"the task book {self.path} can't be used: {error}") from error

    def _open(self, book: sqlite3.Connection) -> None:
        (mark,) = book.execute(_QUERIES["read_mark"]).fetchone()
        if mark == _MARK:
            return
        book.execute(_QUERIES["begin"])
        others = {name for (name,) in book.execute(_QUERIES["list_tables"])} - {"slips"}
        if mark or others:
            raise ConfigurationError(f"{self.path} is no task book, and was left as it is: name another file")
        for query in ("create_slips", "write_mark"):
            book.execute(_QUERIES[query])


def _read(text: str) -> Slip | None:
    try:
        return Slip.load(text)
    except InvalidValue:
        # Perhaps of a newer version, which shares the book: the others are good all the same.
        logger.exception("a slip in the task book can't be read")
        return None
