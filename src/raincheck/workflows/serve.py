"""The workflows of a file, served as tools whose calls become tasks; and taken in anew when the file changes.

What the steps of a pipeline came to in an earlier run: read from the checkpoints of its task.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from mcp.server.mcpserver import MCPServer

from raincheck.clock import Clock, SystemClock
from raincheck.core.payload import Json
from raincheck.engine.tool import TaskTool
from raincheck.errors import ConfigurationError, RaincheckError
from raincheck.server import Tasks
from raincheck.server.tools.json_schema import InputSchema
from raincheck.tracebacks import text_logger
from raincheck.workflows.definition import Definition
from raincheck.workflows.files import files_in, load

logger = text_logger(__name__)

T = TypeVar("T")

LOOK_EVERY = 1.0
"""Seconds between two looks at the file."""

Definitions: TypeAlias = Mapping[str, Definition]
Signature: TypeAlias = tuple[tuple[str, int, int], ...]
"""What tells a state of the files from another: their names, when they were written, and how long they are."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What became of the workflows of a file."""

    added: list[str]
    changed: list[str]
    removed: list[str]

    def __str__(self) -> str:
        told = {"new": self.added, "changed": self.changed, "gone": self.removed}
        return "; ".join(f"{what}: {', '.join(names)}" for what, names in told.items() if names) or "nothing changed"


class WorkflowTasks(Tasks):
    """The tasks of a file of workflows, or of a folder of such files.

    They are kept under the name of the file and that of its folder, so that others of the same name stay apart.

    Raises:
        ConfigurationError: the workflows can't be used.
    """

    def __init__(self, path: Path) -> None:
        # Before they are read: what changes meanwhile is seen.
        self._taken = signature_of(path)
        definitions = load(path).definitions
        whole = path.resolve()
        name = whole.stem if whole.is_file() else whole.name
        super().__init__(MCPServer(name, log_level="WARNING"), namespace=f"{whole.parent.name}/{name}")
        self.path = path
        self.definitions: Definitions = {}
        """What is served now."""
        self.take(definitions)
        self.serve_older(self._rebuilt)

    def _rebuilt(self, definition: bytes) -> tuple[TaskTool, Mapping[str, Json]]:
        # It takes libraries that not everybody has who serves something else.
        from raincheck.workflows.load import rebuilt

        older = rebuilt(definition, self.definitions)
        return older.tool(), older.input_schema

    def take(self, definitions: Definitions) -> Changes:
        """Serve these, and no others. What runs goes on as it began.

        Raises:
            ConfigurationError: they can't be served.
        """
        # All of them, before anything is changed.
        tools = {name: definition.tool() for name, definition in definitions.items()}
        for name, definition in definitions.items():
            InputSchema(name, definition.input_schema)
        before = self.definitions
        for name in before.keys() - definitions.keys():
            self.remove(name)
        for name, tool in tools.items():
            serve = self.replace if name in before else self.add
            serve(tool, input_schema=definitions[name].input_schema, description=definitions[name].description)
        self.definitions = dict(definitions)
        return Changes(
            [name for name in definitions if name not in before],
            [name for name, one in definitions.items() if name in before and _facts(one) != _facts(before[name])],
            [name for name in before if name not in definitions],
        )

    async def kept_fresh(self, work: Coroutine[Any, Any, T], report: Callable[[str], None]) -> T:
        """Do something, and take in what changes in the file meanwhile."""
        watching = asyncio.ensure_future(self.watch(SystemClock(), report))
        try:
            return await work
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    async def watch(self, clock: Clock, report: Callable[[str], None]) -> None:
        """Look at the file now and then, for ever. One that is just being written is left until it is done."""
        seen = self._taken
        while True:
            await clock.sleep(LOOK_EVERY)
            now = await asyncio.to_thread(signature_of, self.path)
            if now != self._taken and now == seen:
                self._taken = now
                await self._take_anew(report)
            seen = now

    async def _take_anew(self, report: Callable[[str], None]) -> None:
        try:
            workflows = await asyncio.to_thread(load, self.path)
            changes = self.take(workflows.definitions)
        except ConfigurationError as error:
            report(
                f"{self.path} has changed, and can't be used as it is now, so the workflows stay as they were:\n{error}"
            )
            return
        except Exception:
            # Whatever it is, what was there is served on.
            logger.exception("%s has changed, and can't be read", self.path)
            return
        report(f"{self.path} has changed, and is used as it is now: {changes}")
        await self.tell_of_changes()
        await self._keep_definitions()

    async def _keep_definitions(self) -> None:
        """Keep what is served now, so that its tasks go on under it whatever the file says later."""
        try:
            await self.engine.recall()
        except ConfigurationError:
            # Nothing runs yet. It is done when something does.
            return
        except RaincheckError as error:
            logger.warning("what %s says now can't be kept yet: %s", self.path, error)


def _facts(definition: Definition) -> tuple[object, ...]:
    return definition.version, definition.description, definition.input_schema


def signature_of(path: Path) -> Signature:
    """What tells this state of a file, or of a folder's files, from others."""
    try:
        stats = [(str(file), file.stat()) for file in files_in(path)]
    except OSError:
        # One may be about to be put in place anew.
        return ()
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)
