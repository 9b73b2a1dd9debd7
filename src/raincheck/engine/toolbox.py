"""The tools of a worker, by name and by version.

A task keeps the definition that it started with. `sync_definitions` restores older definitions that live tasks still
need.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, Unpack, overload

from raincheck.core.records import Tool
from raincheck.engine.tool import TaskTool, ToolSettings, make_tool
from raincheck.errors import ConfigurationError, UnknownTool
from raincheck.stores.base import Store

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ConcurrencyGroup:
    """Tools that share a limit on concurrent attempts; None means that only the limit of the process applies."""

    tools: frozenset[Tool]
    limit: int | None


class Toolbox:
    """A set of tools to run tasks with.

        toolbox = Toolbox()

        @toolbox.tool(attempt_timeout=60)
        async def build_report(year: int, task: TaskContext) -> dict[str, int]: ...

    `TaskTool` has the settings of a tool.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, TaskTool] = {}
        self._by_version: dict[Tool, TaskTool] = {}
        self._groups: tuple[ConcurrencyGroup, ...] | None = None
        self.build_from_definition: Callable[[bytes], TaskTool] | None = None
        """Builds a tool from its definition, for tasks that started under a version that the toolbox no longer has."""

    def __iter__(self) -> Iterator[TaskTool]:
        return iter(dict.fromkeys(self._by_version.values()))

    @overload
    def tool(self, body: F, /) -> F: ...

    @overload
    def tool(self, /, *, name: str | None = None, **settings: Unpack[ToolSettings]) -> Callable[[F], F]: ...

    def tool(self, body: Any = None, /, *, name: str | None = None, **settings: Unpack[ToolSettings]) -> Any:
        """Register a function as a tool, and return the function unchanged. See `TaskTool` for the settings.

        Raises:
            ConfigurationError: the settings or the function are invalid.
        """

        def decorate(body: F) -> F:
            self.add(make_tool(body, name, **settings))
            return body

        return decorate if body is None else decorate(body)

    def add(self, tool: TaskTool) -> None:
        """Add a tool.

        Raises:
            ConfigurationError: a tool of this name and version already exists.
        """
        for version in tool.runnable_tools:
            if version in self._by_version:
                raise ConfigurationError(
                    f"tool {version.name!r} already exists in version {version.version!r}: "
                    f"give one of the two another name or version"
                )
        self.replace(tool)

    def replace(self, tool: TaskTool) -> None:
        """Add a tool, and replace any tool of the same name. It also runs the tasks that wait for the replaced tool."""
        self._by_version |= dict.fromkeys(tool.runnable_tools, tool)
        self._by_name[tool.name] = tool
        self._groups = None

    @property
    def concurrency_groups(self) -> tuple[ConcurrencyGroup, ...]:
        """A group for each tool with its own limit, and one group for all tools without one."""
        if self._groups is None:
            self._groups = tuple(self._make_groups())
        return self._groups

    def _make_groups(self) -> Iterator[ConcurrencyGroup]:
        shared = frozenset(version for tool in self if tool.concurrency is None for version in tool.runnable_tools)
        if shared:
            yield ConcurrencyGroup(shared, None)
        yield from (
            ConcurrencyGroup(tool.runnable_tools, tool.concurrency) for tool in self if tool.concurrency is not None
        )

    def add_older_version(self, tool: TaskTool) -> None:
        """Add a tool that runs tasks of an older version, but creates no new tasks."""
        self._by_version |= dict.fromkeys(tool.runnable_tools, tool)
        self._groups = None

    def subset(self, names: Collection[str] | None) -> "Toolbox":
        """Return a view of these tools, or of all tools for None. The view reflects later changes.

        Raises:
            ConfigurationError: there is no tool of such a name.
        """
        if names is None:
            return self
        unknown = sorted(set(names) - self._by_name.keys())
        if unknown:
            existing = ", ".join(sorted(self._by_name)) or "none"
            raise ConfigurationError(
                f"there is no tool {', '.join(map(repr, unknown))} to run tasks for: the tools are {existing}"
            )
        return _ToolSubset(self, frozenset(names))

    def get(self, name: str) -> TaskTool:
        """Return the tool of this name, in the version added last.

        Raises:
            UnknownTool: there is none.
        """
        found = self._by_name.get(name)
        if found is None:
            raise UnknownTool(name, self._by_name)
        return found

    def find(self, tool: Tool) -> TaskTool | None:
        """Return the tool that can run tasks of this version, if there is one."""
        return self._by_version.get(tool)


class _ToolSubset(Toolbox):
    """A subset of a toolbox: only its queues are claimed from, but all tools can be looked up."""

    def __init__(self, whole: Toolbox, names: frozenset[str]) -> None:
        super().__init__()
        self._parent = whole
        self._names = names
        # Shared, so that tools added later appear here too.
        self._by_name, self._by_version = whole._by_name, whole._by_version
        self._parent_groups: tuple[ConcurrencyGroup, ...] | None = None
        self.build_from_definition = whole.build_from_definition

    def add_older_version(self, tool: TaskTool) -> None:
        self._parent.add_older_version(tool)

    def __iter__(self) -> Iterator[TaskTool]:
        return (tool for tool in super().__iter__() if tool.name in self._names)

    @property
    def concurrency_groups(self) -> tuple[ConcurrencyGroup, ...]:
        if self._parent_groups is not self._parent.concurrency_groups:
            self._parent_groups, self._groups = self._parent.concurrency_groups, None
        return super().concurrency_groups


logger = logging.getLogger(__name__)


async def sync_definitions(store: Store, namespace: str, toolbox: Toolbox) -> None:
    """Store the definitions of the tools, and restore missing definitions that live tasks need."""
    if toolbox.build_from_definition is None:
        return
    needed = await store.save_definitions(namespace, _definitions(toolbox))
    for tool, definition in needed.items():
        if toolbox.find(tool) is None:
            try:
                # In a thread: it searches for commands and modules.
                built = await asyncio.to_thread(toolbox.build_from_definition, definition)
                toolbox.add_older_version(_checked(built, tool))
            except Exception as error:  # noqa: BLE001 - a stored definition may fail in any way, and the other tools must be served
                logger.warning(
                    "tasks of %r in version %r can't run, since that version can't be loaded any more: restore what it "
                    "needs, or cancel the tasks. %s",
                    tool.name,
                    tool.version,
                    error,
                )


def _checked(built: TaskTool, tool: Tool) -> TaskTool:
    """Reject a stored definition that builds a different tool, which would run in place of the right one."""
    if built.runnable_tools != frozenset({tool}):
        raise ConfigurationError(f"its stored definition builds {built.name!r} in version {built.version!r}")
    return built


def _definitions(toolbox: Toolbox) -> Mapping[Tool, bytes]:
    return {Tool(tool.name, tool.version): tool.definition for tool in toolbox if tool.definition is not None}
