"""Serve the workflows of a file as tools whose calls become tasks, and reload them when the file changes."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from mcp.server.mcpserver import MCPServer

from raincheck.clock import Clock, SystemClock
from raincheck.core.values import Json
from raincheck.engine.tool import TaskTool
from raincheck.errors import ConfigurationError, RaincheckError
from raincheck.server import Tasks
from raincheck.server.tools.dynamic_tools import InputSchema
from raincheck.tracebacks import text_logger
from raincheck.workflows.definition import WorkflowDefinition, files_in, load_workflow_files

logger = text_logger(__name__)

T = TypeVar("T")

POLL_INTERVAL = 1.0
"""Seconds between two polls of the file."""

Definitions: TypeAlias = Mapping[str, WorkflowDefinition]
Signature: TypeAlias = tuple[tuple[str, int, int], ...]
"""Identifies a state of the files: their names, modification times and sizes."""


class WorkflowTasks(Tasks):
    """The tasks of a workflow file, or of a folder of workflow files. Each workflow is a tool of their server.

        tasks = WorkflowTasks("release.yaml", "tasks.db")
        tasks.server.run()

    The server is a new one, unless you pass your own. The namespace consists of the names of the file and its folder,
    so that files of the same name stay separate.

    Raises:
        ConfigurationError: the workflows are invalid, or can't be served.
    """

    server: MCPServer[Any]  # type: ignore[assignment] # it is always one of these

    def __init__(
        self,
        path: str | PathLike[str],
        store: str | PathLike[str] | None = None,
        *,
        server: MCPServer[Any] | None = None,
        namespace: str | None = None,
    ) -> None:
        path = Path(path)
        # Taken before the files are read, so that a change in between is detected.
        self._signature = signature_of(path)
        definitions = load_workflow_files(path).definitions
        resolved = path.resolve()
        name = resolved.stem if resolved.is_file() else resolved.name
        super().__init__(
            MCPServer(name, log_level="WARNING") if server is None else server,
            store,
            namespace=namespace or f"{resolved.parent.name}/{name}",
        )
        self.path = path
        self.definitions: Definitions = {}
        """The definitions that are currently served."""
        self.update_definitions(definitions)
        self.set_tool_rebuilder(self._restore_tool)

    def _restore_tool(self, definition: bytes) -> tuple[TaskTool, Mapping[str, Json]]:
        # Imported here, since it needs libraries that are installed only with raincheck[workflows].
        from raincheck.workflows.load import restore_definition

        restored = restore_definition(definition, self.definitions)
        return restored.tool(), restored.input_schema

    def update_definitions(self, definitions: Definitions) -> str:
        """Serve exactly these definitions, and return what has changed, for the operator.

        Running tasks continue with the definition they started with.

        Raises:
            ConfigurationError: they can't be served.
        """
        # Build and check all tools before any of them is served.
        tools = {name: definition.tool() for name, definition in definitions.items()}
        for name, definition in definitions.items():
            InputSchema(name, definition.input_schema)
        before = self.definitions
        for name in before.keys() - definitions.keys():
            self.remove(name)
        for name, tool in tools.items():
            register = self.replace if name in before else self.add
            register(tool, input_schema=definitions[name].input_schema, description=definitions[name].description)
        self.definitions = dict(definitions)
        changes = {
            "new": [name for name in definitions if name not in before],
            "changed": [
                name for name in definitions if name in before and _facts(definitions[name]) != _facts(before[name])
            ],
            "removed": [name for name in before if name not in definitions],
        }
        return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in changes.items() if names) or "nothing changed"

    async def run_with_reload(self, work: Coroutine[Any, Any, T], report: Callable[[str], None] = logger.info) -> T:
        """Run a coroutine, such as that of a server, and reload the workflows when the file changes meanwhile.

        `report` is called with a message about each reload, or about why the file can't be reloaded, and with a warning
        about steps with `unsafe: true`.
        """
        self._warn_about_unsafe_steps(report)
        watcher = asyncio.ensure_future(self.watch(SystemClock(), report))
        try:
            return await work
        finally:
            watcher.cancel()
            await asyncio.wait([watcher])

    async def watch(self, clock: Clock, report: Callable[[str], None]) -> None:
        """Poll the file forever, and reload it after a change, once two polls in a row find it unchanged."""
        previous = self._signature
        while True:
            await clock.sleep(POLL_INTERVAL)
            current = await asyncio.to_thread(signature_of, self.path)
            if current != self._signature and current == previous:
                self._signature = current
                await self._reload(report)
            previous = current

    async def _reload(self, report: Callable[[str], None]) -> None:
        try:
            workflows = await asyncio.to_thread(load_workflow_files, self.path)
            changes = self.update_definitions(workflows.definitions)
        except ConfigurationError as error:
            report(
                f"{self.path} has changed but is invalid, so the previous workflows stay in service. Fix it:\n{error}"
            )
            return
        except Exception:
            # Any error leaves the previous definitions in service.
            logger.exception("workflows not reloaded, the previous ones stay in service (file %s)", self.path)
            return
        report(f"reloaded {self.path}: {changes}")
        self._warn_about_unsafe_steps(report)
        await self.notify_list_changed()
        await self._save_definitions()

    def _warn_about_unsafe_steps(self, report: Callable[[str], None]) -> None:
        steps = [f"{name}.{step}" for name, definition in self.definitions.items() for step in definition.unsafe_steps]
        if steps:
            report(
                f"warning: commands with `unsafe: true` get values that no rule checks ({', '.join(steps)}): make sure "
                f"that they can't run them"
            )

    async def _save_definitions(self) -> None:
        """Store the served definitions, so that their tasks continue under them even if the file changes later."""
        try:
            await self.engine.sync_definitions()
        except ConfigurationError:
            # The engine is not running yet. It stores the definitions when it starts.
            return
        except RaincheckError as error:
            logger.warning("workflow definitions not stored (file %s): %s", self.path, error)


def _facts(definition: WorkflowDefinition) -> tuple[object, ...]:
    return definition.version, definition.description, definition.input_schema


def signature_of(path: Path) -> Signature:
    """Return the signature of the current state of a file, or of a folder's files."""
    try:
        stats = [(str(file), file.stat()) for file in files_in(path)]
    except OSError:
        # A file may be about to be replaced.
        return ()
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)
