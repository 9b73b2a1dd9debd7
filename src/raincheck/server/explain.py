"""What callers of each tool get now, and why: for whoever runs the server to read."""

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mcp.server.mcpserver import MCPServer

from raincheck.core.histogram import Sketch
from raincheck.errors import ConfigurationError
from raincheck.server.runtime import Running
from raincheck.server.tools.policy import Mode
from raincheck.server.tools.registry import ServedTool, ServedTools
from raincheck.server.wait_policy import Choice, Known, choose_inline, choose_plain
from raincheck.stores.factory import find_address, is_there, open_twin
from raincheck.stores.url import MemoryAddress, SqliteAddress

FORBIDDEN = 'nobody gets a task of it (mode="forbidden")'


class Gets(StrEnum):
    """What a caller gets."""

    RESULT = "result"
    """The result, however long that takes."""
    TASK = "task"
    """The result, or a task if it does not come within the wait."""
    TOLD = "told"
    """The result, or a few words on how to go on if it does not come within the wait."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Treatment:
    """How a caller is served, and why."""

    gets: Gets
    waits_seconds: float | None
    """None if it waits for as long as it takes."""
    why: str


@dataclass(frozen=True, slots=True)
class ExplainedTool:
    """A tool whose calls become tasks, and what its callers get."""

    name: str
    mode: Mode
    measured: int
    """Calls. Older ones fade, so that it falls now and then."""
    p50_seconds: float | None
    """What half of them took at most; None if none were measured."""
    p90_seconds: float | None
    """What 9 of 10 took at most."""
    with_tasks: Treatment
    """For a caller that takes tasks, where the server decides."""
    without_tasks: Treatment


@dataclass(frozen=True, slots=True)
class Measured:
    """How long the calls of each tool took, and a sentence on where that is from."""

    sketches: Mapping[str, Sketch]
    source: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """What callers of each tool get now, and why."""

    tools: tuple[ExplainedTool, ...]
    source: str
    """A sentence on where the measurements are from, or why there are none."""
    warnings: tuple[str, ...] = ()
    """Sentences on what keeps the server from doing so."""


def explain_tool(tool: ServedTool, measured: Sketch, plain_wait: float | None) -> ExplainedTool:
    """What callers of a tool get, if its calls took so long."""
    known = Known.of(measured, tool.policy.expected)
    return ExplainedTool(
        name=tool.name,
        mode=tool.policy.mode,
        measured=measured.total,
        p50_seconds=measured.quantile(0.5),
        p90_seconds=measured.quantile(0.9),
        with_tasks=_with_tasks(tool, known),
        without_tasks=_without_tasks(tool, known, plain_wait),
    )


def _with_tasks(tool: ServedTool, known: Known) -> Treatment:
    if tool.policy.mode == "forbidden":
        return Treatment(Gets.RESULT, None, FORBIDDEN)
    return _after(Gets.TASK, choose_inline(tool.policy, known))


def _without_tasks(tool: ServedTool, known: Known, plain_wait: float | None) -> Treatment:
    if tool.policy.mode == "required":
        return Treatment(Gets.REFUSED, 0.0, 'it is for callers that take tasks (mode="required")')
    if tool.policy.mode == "forbidden":
        return Treatment(Gets.RESULT, None, FORBIDDEN)
    if plain_wait is None:
        return Treatment(Gets.RESULT, None, "such callers wait for as long as it takes (plain_wait=None)")
    return _after(Gets.TOLD, choose_plain(tool.policy, known, plain_wait))


def _after(gets: Gets, choice: Choice) -> Treatment:
    return Treatment(gets, choice.seconds, choice.why)


async def explain_all(
    server: MCPServer[Any] | None, tools: ServedTools, running: Running, store: str | os.PathLike[str] | None
) -> Explanation:
    """What callers of the tools of a server get, by what it knows if it runs, else by what is measured in its store.

    Raises:
        ConfigurationError, StoreError: the store can't be read. One that is named here has to be there; the server's
            own may not be yet.
    """
    options = running.options
    listed = [] if server is None else [tool.name for tool in await server.list_tools()]
    found = [tools.find(name) for name in dict.fromkeys((*listed, *tools.enabled.names))]
    served = [tool for tool in found if tool is not None]
    measured = _known_here(running, served) if store is None else None
    if measured is None:
        own = options.store if store is None else store
        measured = await read_measured(own, options.namespace, must_exist=store is not None)
    sketches, wait = measured.sketches, options.plain_wait
    explained = [explain_tool(tool, sketches.get(tool.name, Sketch()), wait) for tool in served]
    return Explanation(tuple(explained), measured.source, tuple(_warnings(running, tools, listed)))


def _warnings(running: Running, tools: ServedTools, listed: Iterable[str]) -> Iterator[str]:
    if running.telling is not None and tools.has_any("auto"):
        try:
            running.telling.tools.check_free((*listed, *tools.enabled.names))
        except ConfigurationError as error:
            yield f"the server does not start like that: {error}"


def _known_here(running: Running, served: Sequence[ServedTool]) -> Measured | None:
    """What a server that runs in this process decides by. Some of it is not in the store yet."""
    try:
        durations = running.engine.durations
    except ConfigurationError:
        return None
    sketches = {tool.name: durations.of(tool.name) for tool in served}
    return Measured(sketches, f"measured for {running.options.namespace!r}, as the server that runs here knows")


async def read_measured(store: str | os.PathLike[str] | None, namespace: str, *, must_exist: bool) -> Measured:
    """What is measured in a store. Nothing is made, and nothing is changed: one who looks is not the one who serves.

    Raises:
        ConfigurationError, StoreError: it can't be read.
    """
    address = find_address(store)
    if isinstance(address, MemoryAddress):
        return Measured({}, "nothing is measured: what is kept in memory ends with the process that kept it")
    if isinstance(address, SqliteAddress) and not await asyncio.to_thread(is_there, address.path):
        if must_exist:
            raise ConfigurationError(f"there is no file {address.path.absolute()}: name a store that a server has made")
        return Measured({}, f"nothing is measured yet: there is no file {address.path.absolute()}")
    async with open_twin(store) as twin:
        sketches = await twin.learn(namespace, {})
    where = address.path.absolute() if isinstance(address, SqliteAddress) else twin
    if not sketches:
        return Measured({}, f"nothing is measured yet for {namespace!r} in {where}")
    return Measured(sketches, f"measured for {namespace!r} in {where}")
