"""The tools that a worker has, by name and by version.

Tasks that began under a definition that has changed since: they go on under the one that they began with.
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
class Pool:
    """Tools that share a bound on how many of their attempts run at once; None is that of the process alone."""

    tools: frozenset[Tool]
    bound: int | None


class Toolbox:
    """Tools to run tasks with.

    toolbox = Toolbox()

        @toolbox.tool(attempt_timeout=60)
        async def build_report(year: int, task: TaskContext) -> dict[str, int]: ...
    """

    def __init__(self) -> None:
        self._by_name: dict[str, TaskTool] = {}
        self._by_version: dict[Tool, TaskTool] = {}
        self._pools: tuple[Pool, ...] | None = None
        self.rebuild: Callable[[bytes], TaskTool] | None = None
        """Makes a tool of its definition, for tasks that began under one that is not here any more."""

    def __iter__(self) -> Iterator[TaskTool]:
        return iter(dict.fromkeys(self._by_version.values()))

    @overload
    def tool(self, body: F, /) -> F: ...

    @overload
    def tool(self, /, *, name: str | None = None, **settings: Unpack[ToolSettings]) -> Callable[[F], F]: ...

    def tool(self, body: Any = None, /, *, name: str | None = None, **settings: Unpack[ToolSettings]) -> Any:
        """Make a function a tool. The function itself stays as it is; `TaskTool` says what can be set.

        Raises:
            ConfigurationError: it can't work like that.
        """

        def decorate(body: F) -> F:
            self.add(make_tool(body, name, **settings))
            return body

        return decorate if body is None else decorate(body)

    def add(self, tool: TaskTool) -> None:
        """Take in a tool.

        Raises:
            ConfigurationError: there is one of its name and version.
        """
        for version in tool.runs:
            if version in self._by_version:
                raise ConfigurationError(
                    f"tool {version.name!r} is there already in version {version.version!r}: "
                    f"give one of the two another name or version"
                )
        self.replace(tool)

    def replace(self, tool: TaskTool) -> None:
        """Take in a tool in the place of the one of its name: what waits for that is run by this."""
        self._by_version |= dict.fromkeys(tool.runs, tool)
        self._by_name[tool.name] = tool
        self._pools = None

    @property
    def pools(self) -> tuple[Pool, ...]:
        """Tools with a bound of their own one by one, all others together."""
        if self._pools is None:
            self._pools = tuple(self._make_pools())
        return self._pools

    def _make_pools(self) -> Iterator[Pool]:
        shared = frozenset(tool for one in self if one.concurrency is None for tool in one.runs)
        if shared:
            yield Pool(shared, None)
        yield from (Pool(one.runs, one.concurrency) for one in self if one.concurrency is not None)

    def keep_older(self, tool: TaskTool) -> None:
        """Take in a tool for what waits for it, and not for new tasks."""
        self._by_version |= dict.fromkeys(tool.runs, tool)
        self._pools = None

    def only(self, names: Collection[str] | None) -> "Toolbox":
        """These of the tools, also as they change later; all of them for None.

        Raises:
            ConfigurationError: there is none of such a name.
        """
        if names is None:
            return self
        unknown = sorted(set(names) - self._by_name.keys())
        if unknown:
            there = ", ".join(sorted(self._by_name)) or "none at all"
            raise ConfigurationError(f"there is no tool {', '.join(map(repr, unknown))} to work for: there is {there}")
        return _Some(self, frozenset(names))

    def get(self, name: str) -> TaskTool:
        """The tool of this name, in the version that was added last.

        Raises:
            UnknownTool: there is none.
        """
        found = self._by_name.get(name)
        if found is None:
            raise UnknownTool(name, self._by_name)
        return found

    def find(self, tool: Tool) -> TaskTool | None:
        """What can run a task of this tool in this version."""
        return self._by_version.get(tool)


class _Some(Toolbox):
    """Some tools of a toolbox: what is taken from its queues. All of them can be asked for here."""

    def __init__(self, whole: Toolbox, names: frozenset[str]) -> None:
        super().__init__()
        self._whole = whole
        self._names = names
        # The same, so that what is taken in later is here too.
        self._by_name, self._by_version = whole._by_name, whole._by_version
        self._made_of: tuple[Pool, ...] | None = None
        self.rebuild = whole.rebuild

    def keep_older(self, tool: TaskTool) -> None:
        self._whole.keep_older(tool)

    def __iter__(self) -> Iterator[TaskTool]:
        return (tool for tool in super().__iter__() if tool.name in self._names)

    @property
    def pools(self) -> tuple[Pool, ...]:
        if self._made_of is not self._whole.pools:
            self._made_of, self._pools = self._whole.pools, None
        return super().pools


logger = logging.getLogger(__name__)


async def recall(store: Store, namespace: str, toolbox: Toolbox) -> None:
    """Keep what the tools are made of, and take in those that live tasks need and that are not here any more."""
    if toolbox.rebuild is None:
        return
    needed = await store.remember(namespace, _definitions(toolbox))
    for tool, definition in needed.items():
        if toolbox.find(tool) is None:
            try:
                # In a thread: it looks for commands and modules.
                made = await asyncio.to_thread(toolbox.rebuild, definition)
                toolbox.keep_older(_checked(made, tool))
            except Exception as error:  # noqa: BLE001 - whatever was kept: what can be served must be
                logger.warning(
                    "tasks of %r in version %r have to wait, since that version can't be used any more: bring back "
                    "what it needs, or cancel them. %s",
                    tool.name,
                    tool.version,
                    error,
                )


def _checked(made: TaskTool, tool: Tool) -> TaskTool:
    """Refuse what was kept for one tool and is another: it would run in the place of that."""
    if made.runs != frozenset({tool}):
        raise ConfigurationError(f"what was kept for it is {made.name!r} in version {made.version!r}")
    return made


def _definitions(toolbox: Toolbox) -> Mapping[Tool, bytes]:
    return {Tool(one.name, one.version): one.definition for one in toolbox if one.definition is not None}
