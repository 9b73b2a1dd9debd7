"""Saved calls: a file of task references, so that a caller can resume its tasks after a crash or on another day."""

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
from raincheck.sql_files import load_queries
from raincheck.tracebacks import text_logger

ProtocolName = Literal["2026-07-28", "2025-11-25", "plain"]
"""The way to follow a task: the methods of a protocol version, or the fallback tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRef:
    """A reference to a task of a server.

    It contains no password and no token: the server must still authorize the caller that uses it. A server without
    authentication grants access to any caller that has the task's id, so protect the reference like the id.
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
        """Parse a reference that `dump` wrote.

        Raises:
            InvalidValue: the text is not a reference.
        """
        try:
            task_ref = cls(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise InvalidValue(f"{text[:80]!r} is not a task reference: {error}") from error
        tools: Any = task_ref.tools
        values = [task_ref.server, task_ref.task_id, task_ref.tool, task_ref.taken_at]
        if isinstance(tools, dict):
            values += [*task_ref.tools, *task_ref.tools.values()]
        is_text = all(isinstance(value, str) for value in values)  # pyright: ignore[reportUnnecessaryIsInstance] - from JSON
        if task_ref.tier not in get_args(ProtocolName) or not isinstance(tools, dict) or not is_text:
            raise InvalidValue(f"{text[:80]!r} is not a task reference that this version can read")
        return task_ref


logger = text_logger(__name__)

T = TypeVar("T")

LOCK_TIMEOUT = 10.0
"""Seconds to wait for another process that writes to the file."""

_MARK = 0x736C6970
"""The application id in the file's header: `slip` in ASCII, as `write_mark` writes it."""

_QUERIES = load_queries(files("raincheck.client") / "saved_calls.sql")


class SavedCalls:
    """Stores task references until their results have been fetched. Several processes may share one file.

    `TaskClient(server, saved_calls=SavedCalls("calls.book"))` writes to it automatically. Only the
    file's owner can read it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    async def add(self, task_ref: TaskRef) -> None:
        """Save a reference. It is on disk when this returns."""
        row = {"task_id": task_ref.task_id, "server": task_ref.server, "slip": task_ref.dump()}
        await self._do(lambda connection: connection.execute(_QUERIES["put"], row))

    async def remove(self, task_ref: TaskRef) -> None:
        """Remove a reference."""
        row = {"task_id": task_ref.task_id, "server": task_ref.server}
        await self._do(lambda connection: connection.execute(_QUERIES["remove"], row))

    async def list_refs(self, server: str | None = None) -> list[TaskRef]:
        """Return the saved references of one server or of all, oldest first."""
        if not await asyncio.to_thread(self.path.exists):
            return []
        rows = await self._do(
            lambda connection: connection.execute(_QUERIES["list_slips"], {"server": server}).fetchall()
        )
        return [task_ref for (text,) in rows if (task_ref := _read(text)) is not None]

    async def find(self, task_id: str) -> TaskRef | None:
        """Return the reference of a task."""
        return next((ref for ref in await self.list_refs() if ref.task_id == task_id), None)

    async def _do(self, do: Callable[[sqlite3.Connection], T]) -> T:
        # Connect in a thread, and for each operation: operations are rare, and the file must not stay open in between.
        return await asyncio.to_thread(self._in_transaction, do)

    def _in_transaction(self, do: Callable[[sqlite3.Connection], T]) -> T:
        try:
            self.path.touch(mode=0o600)
            with closing(sqlite3.connect(self.path, timeout=LOCK_TIMEOUT)) as connection, connection:
                self._open(connection)
                if self.path.stat().st_mode & 0o077:
                    # A task's id may be all that is required to access the task.
                    self.path.chmod(0o600)
                return do(connection)
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(f"can't use the file of saved calls {self.path}: {error}") from error

    def _open(self, connection: sqlite3.Connection) -> None:
        (mark,) = connection.execute(_QUERIES["read_mark"]).fetchone()
        if mark == _MARK:
            return
        connection.execute(_QUERIES["begin"])
        other_tables = {name for (name,) in connection.execute(_QUERIES["list_tables"])} - {"slips"}
        if mark or other_tables:
            raise ConfigurationError(
                f"{self.path} is not a file of saved calls, so it was left unchanged: choose another file"
            )
        for query in ("create_slips", "write_mark"):
            connection.execute(_QUERIES[query])


def _read(text: str) -> TaskRef | None:
    try:
        return TaskRef.load(text)
    except InvalidValue:
        # A newer version that shares the file may have written it. The other references remain usable.
        logger.exception("can't read a saved call; skipping it")
        return None
