"""Tools: the functions that tasks run, and what is to hold for their tasks."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal, TypedDict, TypeVar, Unpack

from raincheck.core.payload import Json
from raincheck.core.policies import DEFAULT_RETENTION, DEFAULT_RETRY, Retention, RetryPolicy
from raincheck.core.records import Tool
from raincheck.engine import settings as checks
from raincheck.engine.workflow import Process
from raincheck.errors import ConfigurationError, InvalidValue
from raincheck.stores.requests import PAGE_LIMIT

T = TypeVar("T")


def same(value: T) -> T:
    """The value itself."""
    return value


def nothing(_: object) -> None:
    """Nothing, whatever is asked."""


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


# Without slots, so that what is derived from the body is derived once and not for every task.
@dataclass(frozen=True, eq=False)
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
    accepts: Callable[[Mapping[str, Json]], object] = same
    """Raises InvalidValue where a new task can't have these arguments, beyond that the body takes such names."""
    process: Process | None = None
    """The workflow whose processes its tasks are, if it has states."""
    definition: bytes | None = None
    """What it is made of, where a file defines it: kept with its tasks, which go on under it when the file changes."""
    subject_of: Callable[[Mapping[str, Json]], str | None] = nothing
    """What a task with these arguments is about: tasks can be listed by it."""
    value_of: Callable[[Json], Json] = same
    """What of its result other tasks get: the whole, unless it is kept in the words of a protocol."""

    def __post_init__(self) -> None:
        checks.check_versions(self.name, self.version, self.continues)
        checks.check_retries(self.name, self.retry, self.retry_on, self.retention)
        checks.check_priority(self.name, self.priority)
        for name in ("attempt_timeout", "timeout", "grace"):
            seconds = getattr(self, name)
            if seconds is not None or name == "grace":
                what = f"tool {self.name!r}: {name}"
                checks.check_seconds(what, seconds, least=0.001, most=checks.LONGEST_TIMEOUT)
        if self.concurrency is not None:
            checks.check_count(f"tool {self.name!r}: concurrency", self.concurrency, least=1, most=PAGE_LIMIT)
        if self.isolation not in (None, "process"):
            raise ConfigurationError(f'tool {self.name!r}: isolation is "process" or nothing, not {self.isolation!r}')
        checks.check_body(self.name, self.body, is_isolated=self.isolation is not None)

    @cached_property
    def is_async(self) -> bool:
        return checks.is_coroutine_function(self.body)

    @cached_property
    def place(self) -> Place:
        if self.isolation == "process":
            return Place.PROCESS
        return Place.LOOP if self.is_async else Place.THREAD

    @cached_property
    def context_name(self) -> str | None:
        """The parameter that takes the context, if it has one."""
        return next(iter(checks.context_parameters(self.body)), None)

    @cached_property
    def runs(self) -> frozenset[Tool]:
        """The versions whose tasks it can run."""
        return frozenset(Tool(self.name, version) for version in (self.version, *self.continues))

    @cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self.body)

    @cached_property
    def _takes_anything(self) -> bool:
        """Whether it takes whatever it is called with, and has no names of its own but that of its context."""
        others = [one for one in self._signature.parameters.values() if one.name != self.context_name]
        return [one.kind for one in others] == [inspect.Parameter.VAR_KEYWORD]

    def check_arguments(self, arguments: Mapping[str, object]) -> None:
        """Refuse arguments that the body does not take.

        Raises:
            InvalidValue: it says which.
        """
        if not isinstance(arguments, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - not every caller is type-checked
            raise InvalidValue(f"the arguments of tool {self.name!r} are names with values, not {arguments!r}")
        if self._takes_anything and self.context_name not in arguments:
            # All tools of servers, whose functions are called by what stands in for them. To bind takes long.
            return
        context = {} if self.context_name is None else {self.context_name: None}
        try:
            self._signature.bind(**arguments, **context)
        except TypeError as error:
            raise InvalidValue(f"tool {self.name!r} can't be called like that: {error}") from error


def make_tool(body: Callable[..., Any], name: str | None = None, **settings: Unpack[ToolSettings]) -> TaskTool:
    """A function as a tool, under its own name unless another is given.

    Raises:
        ConfigurationError: it can't work like that.
    """
    return TaskTool(body, name or getattr(body, "__name__", ""), **settings)
