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
        """Builds a tool from its definition, for tasks that started under a version that is no longer here."""

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
            ConfigurationError: there is already one of this name and version.
        """
        for version in tool.runnable_tools:
            if version in self._by_version:
                raise ConfigurationError(
                    f"tool {version.name!r} is there already in version {version.version!r}: "
                    f"give one of the two another name or version"
                )
        self.replace(tool)

    def replace(self, tool: TaskTool) -> None:
        """Add a tool, replacing any of its name: it runs the tasks that wait for the old one."""
        self._by_version |= dict.fromkeys(tool.runnable_tools, tool)
        self._by_name[tool.name] = tool
        self._groups = None

    @property
    def concurrency_groups(self) -> tuple[ConcurrencyGroup, ...]:
        """A group for each tool with its own limit, and one group for all others."""
        if self._groups is None:
            self._groups = tuple(self._make_pools())
        return self._groups

    def _make_pools(self) -> Iterator[ConcurrencyGroup]:
        shared = frozenset(tool for one in self if one.concurrency is None for tool in one.runnable_tools)
        if shared:
            yield ConcurrencyGroup(shared, None)
        yield from (
            ConcurrencyGroup(one.runnable_tools, one.concurrency) for one in self if one.concurrency is not None
        )

    def add_older_version(self, tool: TaskTool) -> None:
        """Add a tool for tasks that already wait for it, and not for new tasks."""
        self._by_version |= dict.fromkeys(tool.runnable_tools, tool)
        self._groups = None

    def subset(self, names: Collection[str] | None) -> "Toolbox":
        """Return a view of these tools that follows later changes; all of them for None.

        Raises:
            ConfigurationError: there is no tool of such a name.
        """
        if names is None:
            return self
        unknown = sorted(set(names) - self._by_name.keys())
        if unknown:
            there = ", ".join(sorted(self._by_name)) or "none at all"
            raise ConfigurationError(f"there is no tool {', '.join(map(repr, unknown))} to work for: there is {there}")
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
        self._made_of: tuple[ConcurrencyGroup, ...] | None = None
        self.build_from_definition = whole.build_from_definition

    def add_older_version(self, tool: TaskTool) -> None:
        self._parent.add_older_version(tool)

    def __iter__(self) -> Iterator[TaskTool]:
        return (tool for tool in super().__iter__() if tool.name in self._names)

    @property
    def concurrency_groups(self) -> tuple[ConcurrencyGroup, ...]:
        if self._made_of is not self._parent.concurrency_groups:
            self._made_of, self._groups = self._parent.concurrency_groups, None
        return super().concurrency_groups


logger = logging.getLogger(__name__)


async def sync_definitions(store: Store, namespace: str, toolbox: Toolbox) -> None:
    """Store the definitions of the tools, and restore those that live tasks need and that are no longer here."""
    if toolbox.build_from_definition is None:
        return
    needed = await store.save_definitions(namespace, _definitions(toolbox))
    for tool, definition in needed.items():
        if toolbox.find(tool) is None:
            try:
                # In a thread: it searches for commands and modules.
                made = await asyncio.to_thread(toolbox.build_from_definition, definition)
                toolbox.add_older_version(_checked(made, tool))
            except Exception as error:  # noqa: BLE001 - a stored definition may fail in any way, and the other tools must be served
                logger.warning(
                    "tasks of %r in version %r have to wait, since that version can't be used any more: bring back "
                    "what it needs, or cancel them. %s",
                    tool.name,
                    tool.version,
                    error,
                )


def _checked(made: TaskTool, tool: Tool) -> TaskTool:
    """Reject a stored definition that builds a different tool: it would run in place of that one."""
    if made.runnable_tools != frozenset({tool}):
        raise ConfigurationError(f"what was kept for it is {made.name!r} in version {made.version!r}")
    return made


def _definitions(toolbox: Toolbox) -> Mapping[Tool, bytes]:
    return {Tool(one.name, one.version): one.definition for one in toolbox if one.definition is not None}
