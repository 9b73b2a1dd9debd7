"""Saved calls: a file of task references, so that a caller finds its tasks again after a crash or on another day."""

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

ProtocolName = Literal["2026-07-28", "2025-11-25", "plain"]
"""How to communicate about a task: with the methods of a protocol version, or with the fallback tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRef:
    """A reference to a task of a server.

    It contains no password and no token: its holder must still be authorized by the server. A server that does not
    authenticate callers knows them only by the ids that they hold, so protect the reference as you would protect the
    id.
    """

    server: str
    """The server's address, or the command that runs it."""
    task_id: str
    tool: str
    tier: ProtocolName
    tools: dict[str, str] = field(default_factory=dict[str, str])
    """The names of the tools that follow the task, for a caller without tasks."""
    taken_at: str = ""
    """When the caller received the task, by the caller's clock."""

    def dump(self) -> str:
        """Return the reference as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def load(cls, text: str) -> Self:
        """Return the reference that `dump` wrote.

        Raises:
            InvalidValue: the text is not a reference.
        """
        try:
            slip = cls(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise InvalidValue(f"{text[:80]!r} is not a task reference: {error}") from error
        tools: Any = slip.tools
        values = [slip.server, slip.task_id, slip.tool, slip.taken_at]
        if isinstance(tools, dict):
            values += [*slip.tools, *slip.tools.values()]
        is_text = all(isinstance(value, str) for value in values)  # pyright: ignore[reportUnnecessaryIsInstance] - from JSON
        if slip.tier not in get_args(ProtocolName) or not isinstance(tools, dict) or not is_text:
            raise InvalidValue(f"{text[:80]!r} is not a task reference that this version can read")
        return slip


logger = text_logger(__name__)

T = TypeVar("T")

LOCK_TIMEOUT = 10.0

_MARK = 0x736C6970
"""The application id in the file's header: `slip` in ASCII, as `write_mark` writes it."""

_QUERIES = load_queries(files("raincheck.client") / "saved_calls.sql")


class SavedCalls:
    """Stores task references until their results have been fetched. Several processes may share one file.

    `TaskClient(server, saved_calls=SavedCalls("calls.book"))` writes to it automatically. Only its owner can read the
    file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    async def add(self, task_ref: TaskRef) -> None:
        """Save a reference. It is on disk when this returns."""
        row = {"task_id": task_ref.task_id, "server": task_ref.server, "slip": task_ref.dump()}
        await self._do(lambda book: book.execute(_QUERIES["put"], row))

    async def remove(self, task_ref: TaskRef) -> None:
        """Remove a reference."""
        row = {"task_id": task_ref.task_id, "server": task_ref.server}
        await self._do(lambda book: book.execute(_QUERIES["remove"], row))

    async def list_refs(self, server: str | None = None) -> list[TaskRef]:
        """Return the saved references of one server or of all, oldest first."""
        if not await asyncio.to_thread(self.path.exists):
            return []
        rows = await self._do(lambda book: book.execute(_QUERIES["list_slips"], {"server": server}).fetchall())
        return [slip for (text,) in rows if (slip := _read(text)) is not None]

    async def find(self, task_id: str) -> TaskRef | None:
        """Return the reference of a task."""
        return next((slip for slip in await self.list_refs() if slip.task_id == task_id), None)

    async def _do(self, do: Callable[[sqlite3.Connection], T]) -> T:
        # Connect in a thread, and for each operation: operations are rare, and the file must not stay open meanwhile.
        return await asyncio.to_thread(self._in_transaction, do)

    def _in_transaction(self, do: Callable[[sqlite3.Connection], T]) -> T:
        try:
            self.path.touch(mode=0o600)
            with closing(sqlite3.connect(self.path, timeout=LOCK_TIMEOUT)) as book, book:
                self._open(book)
                if self.path.stat().st_mode & 0o077:
                    # A task's id may be all that it takes to access the task.
                    self.path.chmod(0o600)
                return do(book)
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(f"the file of saved calls {self.path} can't be used: {error}") from error

    def _open(self, book: sqlite3.Connection) -> None:
        (mark,) = book.execute(_QUERIES["read_mark"]).fetchone()
        if mark == _MARK:
            return
        book.execute(_QUERIES["begin"])
        others = {name for (name,) in book.execute(_QUERIES["list_tables"])} - {"slips"}
        if mark or others:
            raise ConfigurationError(
                f"{self.path} is not a file of saved calls, and was left unchanged: name another file"
            )
        for query in ("create_slips", "write_mark"):
            book.execute(_QUERIES[query])


def _read(text: str) -> TaskRef | None:
    try:
        return TaskRef.load(text)
    except InvalidValue:
        # A newer version that shares the file may have written it. The other references remain usable.
        logger.exception("a saved call can't be read")
        return None
