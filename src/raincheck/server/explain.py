"""Explain to the operator of a server what callers of each tool get now, and why."""

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from mcp.server.mcpserver import MCPServer

from raincheck.core.histogram import DurationHistogram
from raincheck.errors import ConfigurationError
from raincheck.server.runtime import ServerRuntime
from raincheck.server.tools.policy import Mode, TaskPolicy
from raincheck.server.tools.registry import ServedTool, ToolRegistry
from raincheck.server.wait_policy import DurationEstimate, choose_fallback_wait, choose_inline_wait
from raincheck.stores.factory import open_existing_store, resolve_address, store_file_exists
from raincheck.stores.url import MemoryAddress, SqliteAddress

Measurements: TypeAlias = tuple[Mapping[str, DurationHistogram], str]
"""Durations of the calls of each tool, and a sentence on where they were measured."""

FORBIDDEN = 'its calls never become tasks (mode="forbidden")'
ENDLESS = "such callers wait for as long as the call takes (fallback_wait=None)"
REQUIRED = 'only callers that accept tasks can call it (mode="required")'


class CallerOutcome(StrEnum):
    """Kind of answer that a caller gets."""

    RESULT = "result"
    """The result, however long the call takes."""
    TASK = "task"
    """The result, or a task if the call does not end within the wait."""
    FALLBACK = "fallback"
    """The result, or a short text on how to continue if the call does not end within the wait."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class CallerTreatment:
    """An answer to a caller, the time until it, and the reason."""

    outcome: CallerOutcome
    waits_seconds: float | None
    """None if the caller waits for as long as the call takes."""
    reason: str


@dataclass(frozen=True, slots=True)
class ToolExplanation:
    """A tool whose calls become tasks, and the answers that its callers get."""

    name: str
    mode: Mode
    measured: int
    """Number of measured calls. Older calls decay, so that it drops now and then."""
    p50_seconds: float | None
    """Longest duration of the faster half of the calls; None if none were measured."""
    p90_seconds: float | None
    """Longest duration of the fastest 9 of 10 calls."""
    with_tasks: CallerTreatment
    """For a caller that accepts tasks, where the server decides."""
    without_tasks: CallerTreatment


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answers that callers of each tool get now, and why."""

    tools: tuple[ToolExplanation, ...]
    source: str
    """A sentence on where the measurements are from, or why there are none."""
    warnings: tuple[str, ...] = ()
    """Sentences on what keeps the server from serving callers like that."""


def explain_tool(tool: ServedTool, histogram: DurationHistogram, fallback_wait: float | None) -> ToolExplanation:
    """Explain what callers of a tool get, given the durations of its calls."""
    estimate = DurationEstimate.from_measurements(histogram, tool.policy.expected)
    if tool.policy.mode == "forbidden":
        with_tasks = without_tasks = CallerTreatment(CallerOutcome.RESULT, None, FORBIDDEN)
    else:
        inline = choose_inline_wait(tool.policy, estimate)
        with_tasks = CallerTreatment(CallerOutcome.TASK, inline.seconds, inline.reason)
        without_tasks = _without_tasks(tool.policy, estimate, fallback_wait)
    return ToolExplanation(
        name=tool.name,
        mode=tool.policy.mode,
        measured=histogram.total,
        p50_seconds=histogram.quantile(0.5),
        p90_seconds=histogram.quantile(0.9),
        with_tasks=with_tasks,
        without_tasks=without_tasks,
    )


def _without_tasks(policy: TaskPolicy, estimate: DurationEstimate, fallback_wait: float | None) -> CallerTreatment:
    if policy.mode == "required":
        return CallerTreatment(CallerOutcome.REFUSED, 0.0, REQUIRED)
    if fallback_wait is None:
        return CallerTreatment(CallerOutcome.RESULT, None, ENDLESS)
    decision = choose_fallback_wait(policy, estimate, fallback_wait)
    return CallerTreatment(CallerOutcome.FALLBACK, decision.seconds, decision.reason)


async def explain_all(
    server: MCPServer[Any] | None, tools: ToolRegistry, runtime: ServerRuntime, store: str | os.PathLike[str] | None
) -> Explanation:
    """Explain what callers of a server's tools get, from the running server's data or else from a store.

    Raises:
        ConfigurationError, StoreError: the store can't be read. A store that is named here must exist; the server's
            own may not exist yet.
    """
    options = runtime.options
    listed = [] if server is None else [tool.name for tool in await server.list_tools()]
    candidates = [tools.find(name) for name in dict.fromkeys((*listed, *tools.enabled.names))]
    served = [tool for tool in candidates if tool is not None]
    measured = _measurements_of_running_server(runtime, served) if store is None else None
    if measured is None:
        address = options.store if store is None else store
        measured = await read_measurements(address, options.namespace, must_exist=store is not None)
    (histograms, source), wait = measured, options.fallback_wait
    explained = [explain_tool(tool, histograms.get(tool.name, DurationHistogram()), wait) for tool in served]
    return Explanation(tuple(explained), source, tuple(_warnings(runtime, tools, listed)))


def _warnings(runtime: ServerRuntime, tools: ToolRegistry, listed: Iterable[str]) -> Iterator[str]:
    if runtime.options.fallback_wait is not None and tools.has_mode("auto"):
        try:
            runtime.options.fallback_tools.check_free((*listed, *tools.enabled.names))
        except ConfigurationError as error:
            yield f"the server would not start: {error}"


def _measurements_of_running_server(runtime: ServerRuntime, served: Sequence[ServedTool]) -> Measurements | None:
    """Return the measurements of a server that runs in this process. Some of them are not in the store yet."""
    try:
        durations = runtime.engine.durations
    except ConfigurationError:
        return None
    histograms = {tool.name: durations.histogram(tool.name) for tool in served}
    return histograms, f"measured for {runtime.options.namespace!r} by the server in this process"


async def read_measurements(store: str | os.PathLike[str] | None, namespace: str, *, must_exist: bool) -> Measurements:
    """Read the measurements in a store. Create and change nothing: the reader is not the server.

    Raises:
        ConfigurationError, StoreError: the store can't be read.
    """
    address = resolve_address(store)
    if isinstance(address, MemoryAddress):
        return {}, "nothing is measured: a store in memory ends with its process"
    if isinstance(address, SqliteAddress) and not await asyncio.to_thread(store_file_exists, address.path):
        if must_exist:
            raise ConfigurationError(f"there is no file {address.path.absolute()}: name the store of a server")
        return {}, f"nothing is measured yet: there is no file {address.path.absolute()}"
    async with open_existing_store(store) as handle:
        histograms = await handle.merge_durations(namespace, {})
    where = address.path.absolute() if isinstance(address, SqliteAddress) else handle
    return histograms, f"{'measured' if histograms else 'nothing is measured yet'} for {namespace!r} in {where}"
