"""Tools: the functions that tasks run, and what is to hold for their tasks."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Literal, TypedDict, Unpack

from raincheck.core.create import PRIORITIES
from raincheck.core.records import Tool
from raincheck.core.retention import DEFAULT_RETENTION, Retention
from raincheck.core.retry import DEFAULT_RETRY, RetryPolicy
from raincheck.core.text import check_name
from raincheck.engine.context import TaskContext
from raincheck.engine.sync_context import SyncTaskContext
from raincheck.errors import ConfigurationError, InvalidValue

LONGEST_TIMEOUT = timedelta(days=366).total_seconds()

_CONTEXTS = {TaskContext.__name__: TaskContext, SyncTaskContext.__name__: SyncTaskContext}


class Place(StrEnum):
    """Where a body runs."""

    LOOP = "loop"
    """A coroutine, in the event loop."""
    THREAD = "thread"
    """A plain function, in a thread of its own."""
    PROCESS = "process"
    """Either, in a fresh process: what it does to its process, it does to nobody else."""


class ToolSettings(TypedDict, total=False):
    """What can be said of a tool besides its name. `TaskTool` has the defaults and the meanings."""

    version: str
    continues: tuple[str, ...]
    isolation: Literal["process"] | None
    retry: RetryPolicy
    retry_on: tuple[type[BaseException], ...]
    attempt_timeout: float | None
    timeout: float | None
    grace: float
    retention: Retention
    priority: int
    concurrency: int | None


@dataclass(frozen=True, slots=True, eq=False)
class TaskTool:
    """A function, and what is to hold for the tasks that run it. Times are in seconds."""

    body: Callable[..., Any]
    name: str
    version: str = "1"
    """A task is run by a worker that has its tool in that version."""
    continues: tuple[str, ...] = ()
    """Older versions whose tasks this one can go on with."""
    isolation: Literal["process"] | None = None
    """`"process"`: run it in a process of its own, which can be killed and may crash."""
    retry: RetryPolicy = DEFAULT_RETRY
    """How often to try again, after which waits, and whether at all after a crash."""
    retry_on: tuple[type[BaseException], ...] = (Exception,)
    """After which errors to try again."""
    attempt_timeout: float | None = None
    """For one attempt. Waiting that holds no worker does not count."""
    timeout: float | None = None
    """For the whole task, from its creation, with all its waiting."""
    grace: float = 5.0
    """For the body to stop when it is told to, before it is killed or left alone."""
    retention: Retention = DEFAULT_RETENTION
    """How long the task stays after its end."""
    priority: int = 0
    """What goes first when workers are short, from -100 to 100."""
    concurrency: int | None = None
    """How many of it may run at once in one process."""

    def __post_init__(self) -> None:
        _check(self)

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.body)

    @property
    def place(self) -> Place:
        if self.isolation == "process":
            return Place.PROCESS
        return Place.LOOP if self.is_async else Place.THREAD

    @property
    def context_name(self) -> str | None:
        """The parameter that takes the context, if it has one."""
        return next(iter(_context_parameters(self.body)), None)

    @property
    def runs(self) -> frozenset[Tool]:
        """The versions whose tasks it can run."""
        return frozenset(Tool(self.name, version) for version in (self.version, *self.continues))

    def check_arguments(self, arguments: Mapping[str, object]) -> None:
        """Refuse arguments that the body does not take.

        Raises:
            InvalidValue: it says which.
        """
        context = {} if self.context_name is None else {self.context_name: None}
        try:
            inspect.signature(self.body).bind(**arguments, **context)
        except TypeError as error:
            raise InvalidValue(f"tool {self.name!r} can't be called like that: {error}") from error


def make_tool(body: Callable[..., Any], name: str | None = None, **settings: Unpack[ToolSettings]) -> TaskTool:
    """A function as a tool, under its own name unless another is given.

    Raises:
        ConfigurationError: it can't work like that.
    """
    return TaskTool(body, name or getattr(body, "__name__", ""), **settings)


def _check(tool: TaskTool) -> None:
    try:
        check_name(tool.name, what="a tool's name")
        for version in (tool.version, *tool.continues):
            check_name(version, what=f"a version of tool {tool.name!r}")
    except InvalidValue as error:
        raise ConfigurationError(str(error)) from error
    for name in ("attempt_timeout", "timeout", "grace"):
        seconds = getattr(tool, name)
        if seconds is not None and not (math.isfinite(seconds) and 0 < seconds <= LONGEST_TIMEOUT):
            raise ConfigurationError(
                f"tool {tool.name!r}: {name} is from 0 to {LONGEST_TIMEOUT:.0f} seconds, not {seconds}"
            )
    if tool.priority not in PRIORITIES:
        raise ConfigurationError(f"tool {tool.name!r}: priority is from -100 to 100, not {tool.priority}")
    if tool.concurrency is not None and tool.concurrency < 1:
        raise ConfigurationError(f"tool {tool.name!r}: concurrency is at least 1, not {tool.concurrency}")
    if tool.isolation not in (None, "process"):
        raise ConfigurationError(f'tool {tool.name!r}: isolation is "process" or nothing, not {tool.isolation!r}')
    if tool.isolation == "process" and not (inspect.isfunction(tool.body) and "<" not in tool.body.__qualname__):
        raise ConfigurationError(
            f"tool {tool.name!r}: another process can't find {getattr(tool.body, '__qualname__', tool.body)!r}: "
            f"make it a function at the top level of a module"
        )
    _check_context(tool)


def _check_context(tool: TaskTool) -> None:
    contexts = _context_parameters(tool.body)
    if len(contexts) > 1:
        raise ConfigurationError(
            f"tool {tool.name!r} takes its context twice, as {' and '.join(contexts)}: once will do"
        )
    wanted = TaskContext if tool.is_async else SyncTaskContext
    for name, found in contexts.items():
        if found is not wanted:
            kind = "a coroutine" if tool.is_async else "a plain function"
            raise ConfigurationError(
                f"tool {tool.name!r} is {kind}, and its parameter {name!r} a {found.__name__}: "
                f"make it a {wanted.__name__}"
            )


def _context_parameters(body: Callable[..., Any]) -> dict[str, type]:
    """Which parameters are annotated as a context; in a string too, which need not be one that can be evaluated."""
    found: dict[str, type] = {}
    for name, parameter in inspect.signature(body).parameters.items():
        note = parameter.annotation
        # Quotes that were postponed with the rest of the annotation are part of it.
        words = note.strip("'\"").rpartition(".")[2] if isinstance(note, str) else getattr(note, "__name__", "")
        context = _CONTEXTS.get(words)
        if context is not None:
            found[name] = context
    return found
