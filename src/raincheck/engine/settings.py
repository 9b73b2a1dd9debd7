"""How an engine works: how much at once, how often it looks, how long it waits. Times are in seconds.

What can't work is refused where a tool is made, and not when its first task runs.

What everything in an engine works with.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from raincheck.core.create import PRIORITIES
from raincheck.core.limits import Limits, Quota
from raincheck.core.policies import Retention, RetryPolicy
from raincheck.core.validation import check_name
from raincheck.engine.execution.context import SyncTaskContext, TaskContext
from raincheck.errors import ConfigurationError, InvalidValue
from raincheck.stores.requests import LONGEST_LEASE, PAGE_LIMIT

LONGEST_TIMEOUT = timedelta(days=366).total_seconds()

CONTEXTS: dict[str, type] = {kind.__name__: kind for kind in (TaskContext, SyncTaskContext)}


def check_seconds(what: str, value: Any, *, least: float, most: float) -> None:  # noqa: ANN401 - whatever somebody gave
    """Refuse what is no number of seconds within bounds.

    Raises:
        ConfigurationError: it says what is wrong with it.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigurationError(f"{what} is a number of seconds, not {value!r}")
    if not (math.isfinite(value) and least <= value <= most):
        raise ConfigurationError(f"{what} is from {least:g} to {most:.0f} seconds, not {value}")


def check_count(what: str, value: Any, *, least: int, most: int) -> None:  # noqa: ANN401 - likewise
    """Refuse what is no whole number within bounds.

    Raises:
        ConfigurationError: it says what is wrong with it.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigurationError(f"{what} is a whole number from {least} to {most}, not {value!r}")


def check_kind(what: str, value: object, kind: type) -> None:
    """Refuse what is not of a kind.

    Raises:
        ConfigurationError: it says what is wanted.
    """
    if not isinstance(value, kind):
        raise ConfigurationError(f"{what} is a {kind.__name__}, not {value!r}")


def is_coroutine_function(fn: object) -> bool:
    """Whether calling it gives something to await: also an object that is called like a coroutine."""
    return any(inspect.iscoroutinefunction(one) for one in (fn, getattr(fn, "__call__", None)))  # noqa: B004 - what it does when called


def check_body(name: str, body: Callable[..., Any], *, is_isolated: bool) -> None:
    """Refuse a function that can't be a body.

    Raises:
        ConfigurationError: it says why.
    """
    if not callable(body):
        raise ConfigurationError(f"tool {name!r} is a function, not {body!r}")
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise ConfigurationError(f"tool {name!r} is a generator, and a task has one result: return it")
    if is_isolated and not (inspect.isfunction(body) and "<" not in body.__qualname__):
        raise ConfigurationError(
            f"tool {name!r}: another process can't find {getattr(body, '__qualname__', body)!r}: "
            f"make it a function at the top level of a module"
        )
    _check_context(name, body)


def check_versions(name: str, version: Any, continues: Any) -> None:  # noqa: ANN401 - likewise
    """Refuse a name or versions that can't be kept.

    Raises:
        ConfigurationError: it says which.
    """
    check_kind(f"tool {name!r}: version", version, str)
    check_kind(f"tool {name!r}: continues, the versions it can go on with,", continues, tuple)
    try:
        check_name(name, what="a tool's name")
        for one in (version, *continues):
            check_name(one, what=f"a version of tool {name!r}")
    except InvalidValue as error:
        raise ConfigurationError(str(error)) from error


def check_retries(name: str, retry: object, retry_on: Any, retention: object) -> None:  # noqa: ANN401 - likewise
    """Refuse policies that are none.

    Raises:
        ConfigurationError: it says which.
    """
    check_kind(f"tool {name!r}: retry", retry, RetryPolicy)
    check_kind(f"tool {name!r}: retention", retention, Retention)
    is_types = isinstance(retry_on, tuple) and all(
        isinstance(one, type) and issubclass(one, BaseException)
        for one in retry_on  # pyright: ignore[reportUnknownVariableType] - whatever somebody gave
    )
    if not is_types:
        raise ConfigurationError(f"tool {name!r}: retry_on is a tuple of types of errors, not {retry_on!r}")


def check_priority(name: str, priority: object) -> None:
    check_count(f"tool {name!r}: priority", priority, least=PRIORITIES[0], most=PRIORITIES[-1])


def _check_context(name: str, body: Callable[..., Any]) -> None:
    contexts = context_parameters(body)
    if len(contexts) > 1:
        raise ConfigurationError(f"tool {name!r} takes its context twice, as {' and '.join(contexts)}: once will do")
    is_async = is_coroutine_function(body)
    wanted = TaskContext if is_async else SyncTaskContext
    for parameter, found in contexts.items():
        if found is not wanted:
            kind = "a coroutine" if is_async else "a plain function"
            raise ConfigurationError(
                f"tool {name!r} is {kind}, and its parameter {parameter!r} a {found.__name__}: "
                f"make it a {wanted.__name__}"
            )


def context_parameters(body: Callable[..., Any]) -> dict[str, type]:
    """Which parameters are annotated as a context; in a string too, which need not be one that can be evaluated."""
    found: dict[str, type] = {}
    for name, parameter in inspect.signature(body).parameters.items():
        note = parameter.annotation
        # Quotes that were postponed with the rest of the annotation are part of it.
        words = note.strip("'\"").rpartition(".")[2] if isinstance(note, str) else getattr(note, "__name__", "")
        context = CONTEXTS.get(words)
        if context is not None:
            found[name] = context
        elif name == "task" and (note is parameter.empty or "TaskContext" in str(note)):
            raise ConfigurationError(
                f"{getattr(body, '__name__', body)!r}: annotate the parameter `task` as TaskContext, or in a plain "
                f"function as SyncTaskContext, and nothing else; if it is an argument, give it its own type"
            )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What can be set for an engine. The defaults suit a server with a file of its own."""

    concurrency: int = 32
    """How many attempts run at once in this process. Most bodies wait for others most of the time."""
    queues: frozenset[str] | None = None
    """The tools whose tasks this process runs, by name: each has a queue of its own. None is all of them."""
    lease: float = 15.0
    """How long a task stays with a process that has died. It is extended three times in that time."""
    patience: float = 2.0
    """How long a body that waits keeps its place before it parks, if nobody else needs it."""
    grace: float = 10.0
    """How long bodies may go on when the engine is told to stop, before they are handed back."""
    report_every: float = 0.25
    """How often progress is written at most."""
    look_every: float = 5.0
    """How often to look for work that nobody told of."""
    prune_every: float = 60.0
    """How often to forget what has expired."""
    limits: Limits = field(default_factory=Limits)
    """Bounds on one task."""
    quota: Quota = field(default_factory=lambda: Quota(live=10_000))
    """Bounds on one owner."""

    def __post_init__(self) -> None:
        check_count("concurrency", self.concurrency, least=1, most=PAGE_LIMIT)
        if self.queues is not None:
            check_kind("queues", self.queues, frozenset)
            if not self.queues:
                raise ConfigurationError("queues names no tool: name some, or leave it out for all of them")
        check_kind("limits", self.limits, Limits)
        check_kind("quota", self.quota, Quota)
        for name in ("lease", "patience", "grace", "report_every", "look_every", "prune_every"):
            least = 0.0 if name in ("patience", "grace", "report_every") else 0.01
            check_seconds(name, getattr(self, name), least=least, most=LONGEST_LEASE.total_seconds())
