"""Engine settings, and the checks of engine and tool settings. Times are in seconds.

Invalid settings are rejected when the tool or the engine is made, not when its first task runs. Every check raises a
`ConfigurationError` that says what is wrong.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from raincheck.core.change import PRIORITIES
from raincheck.core.policies import Limits, Quota, Retention, RetryPolicy
from raincheck.core.values import check_name
from raincheck.engine.execution.context import TaskContext
from raincheck.engine.execution.sync_context import SyncTaskContext
from raincheck.errors import ConfigurationError, InvalidValue
from raincheck.stores.requests import MAX_LEASE, PAGE_LIMIT

MAX_TIMEOUT = timedelta(days=366).total_seconds()

CONTEXT_TYPES: dict[str, type] = {kind.__name__: kind for kind in (TaskContext, SyncTaskContext)}


def check_seconds(what: str, value: Any, *, minimum: float, maximum: float) -> None:  # noqa: ANN401 - any value a caller passes
    """Reject a value that is not a number of seconds within bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigurationError(f"{what} is a number of seconds, not {value!r}")
    if not (math.isfinite(value) and minimum <= value <= maximum):
        raise ConfigurationError(f"{what} is from {minimum:g} to {maximum:.0f} seconds, not {value}")


def check_count(what: str, value: Any, *, minimum: int, maximum: int) -> None:  # noqa: ANN401 - as above
    """Reject a value that is not a whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        raise ConfigurationError(f"{what} is a whole number from {minimum} to {maximum}, not {value!r}")


def check_type(what: str, value: object, expected: type) -> None:
    """Reject a value that is not of this type."""
    if not isinstance(value, expected):
        raise ConfigurationError(f"{what} is a {expected.__name__}, not {value!r}")


def is_coroutine_function(fn: object) -> bool:
    """Return whether calling it returns an awaitable. Includes objects with an async `__call__`."""
    return any(inspect.iscoroutinefunction(candidate) for candidate in (fn, getattr(fn, "__call__", None)))  # noqa: B004 - checks the behaviour of a call


def check_body(name: str, body: Callable[..., Any], *, is_isolated: bool) -> None:
    """Reject a function that can't be a body."""
    if not callable(body):
        raise ConfigurationError(f"tool {name!r} is a function, not {body!r}")
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise ConfigurationError(f"tool {name!r} is a generator, but a task has a single result: return it instead")
    if is_isolated and not (inspect.isfunction(body) and "<" not in body.__qualname__):
        raise ConfigurationError(
            f"tool {name!r}: another process can't find {getattr(body, '__qualname__', body)!r}: "
            f"make it a function at the top level of a module"
        )
    _check_context(name, body)


def check_versions(name: str, version: Any, continues: Any) -> None:  # noqa: ANN401 - as above
    """Reject a name or versions that can't be stored."""
    check_type(f"tool {name!r}: version", version, str)
    check_type(f"tool {name!r}: continues, the older versions whose tasks it can resume,", continues, tuple)
    try:
        check_name(name, what="a tool's name")
        for each in (version, *continues):
            check_name(each, what=f"a version of tool {name!r}")
    except InvalidValue as error:
        raise ConfigurationError(str(error)) from error


def check_policies(name: str, retry: object, retry_on: Any, retention: object) -> None:  # noqa: ANN401 - as above
    """Reject values that are not policies."""
    check_type(f"tool {name!r}: retry", retry, RetryPolicy)
    check_type(f"tool {name!r}: retention", retention, Retention)
    is_types = isinstance(retry_on, tuple) and all(
        isinstance(kind, type) and issubclass(kind, BaseException)
        for kind in retry_on  # pyright: ignore[reportUnknownVariableType] - any value a caller passes
    )
    if not is_types:
        raise ConfigurationError(f"tool {name!r}: retry_on is a tuple of types of errors, not {retry_on!r}")


def check_priority(name: str, priority: object) -> None:
    check_count(f"tool {name!r}: priority", priority, minimum=PRIORITIES[0], maximum=PRIORITIES[-1])


def _check_context(name: str, body: Callable[..., Any]) -> None:
    contexts = context_parameters(body)
    if len(contexts) > 1:
        raise ConfigurationError(
            f"tool {name!r} takes its context twice, as {' and '.join(contexts)}: remove one of them"
        )
    is_async = is_coroutine_function(body)
    wanted = TaskContext if is_async else SyncTaskContext
    for parameter, found in contexts.items():
        if found is not wanted:
            kind = "a coroutine" if is_async else "a plain function"
            raise ConfigurationError(
                f"tool {name!r} is {kind}, but its parameter {parameter!r} is a {found.__name__}: "
                f"make it a {wanted.__name__}"
            )


def context_parameters(body: Callable[..., Any]) -> dict[str, type]:
    """Return the parameters annotated as a context. A string annotation counts, even if it can't be evaluated."""
    found: dict[str, type] = {}
    for name, parameter in inspect.signature(body).parameters.items():
        annotation = parameter.annotation
        # With postponed evaluation, the quotes of a string annotation are part of it.
        type_name = (
            annotation.strip("'\"").rpartition(".")[2]
            if isinstance(annotation, str)
            else getattr(annotation, "__name__", "")
        )
        context = CONTEXT_TYPES.get(type_name)
        if context is not None:
            found[name] = context
        elif name == "task" and (annotation is parameter.empty or "TaskContext" in str(annotation)):
            raise ConfigurationError(
                f"{getattr(body, '__name__', body)!r}: annotate the parameter `task` as TaskContext, or in a plain "
                f"function as SyncTaskContext, and nothing else; if it is an argument, give it its own type"
            )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of an engine. The defaults suit a server with its own database file."""

    concurrency: int = 32
    """Maximum concurrent attempts in this process. Most bodies wait for other systems most of the time."""
    queues: frozenset[str] | None = None
    """The tools whose tasks this process runs, by name: each has its own queue. None means all of them."""
    lease: float = 15.0
    """How long a task stays with a process that has died. A lease is extended three times in this time."""
    park_after: float = 2.0
    """How long a waiting body keeps its slot before it parks, if no other task needs the slot."""
    grace: float = 10.0
    """How long bodies may keep running when the engine stops, before their tasks are released."""
    progress_interval: float = 0.25
    """Minimum interval between writes of progress."""
    poll_interval: float = 5.0
    """Interval of polling for work that no notification announced."""
    prune_interval: float = 60.0
    """Interval of pruning expired tasks."""
    limits: Limits = field(default_factory=Limits)
    """Limits of one task."""
    quota: Quota = field(default_factory=lambda: Quota(live=10_000))
    """Limits of one owner."""

    def __post_init__(self) -> None:
        check_count("concurrency", self.concurrency, minimum=1, maximum=PAGE_LIMIT)
        if self.queues is not None:
            check_type("queues", self.queues, frozenset)
            if not self.queues:
                raise ConfigurationError("queues is empty: name at least one tool, or leave it out to run all of them")
        check_type("limits", self.limits, Limits)
        check_type("quota", self.quota, Quota)
        for name in ("lease", "park_after", "grace", "progress_interval", "poll_interval", "prune_interval"):
            least = 0.0 if name in ("park_after", "grace", "progress_interval") else 0.01
            check_seconds(name, getattr(self, name), minimum=least, maximum=MAX_LEASE.total_seconds())
