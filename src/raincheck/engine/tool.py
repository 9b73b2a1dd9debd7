"""Tools: functions that tasks run, with the settings of their tasks, and new tasks that call them."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, TypeVar, Unpack

from raincheck.clock import Clock, new_task_id
from raincheck.core.change import Change, Creation, NewTask, create, digest_request
from raincheck.core.owner import Owner, Scope
from raincheck.core.policies import DEFAULT_RETENTION, DEFAULT_RETRY, Retention, RetryPolicy, clamp_ttl
from raincheck.core.records import Task, TaskId, Tool
from raincheck.core.values import Json, Payload, encode
from raincheck.engine import settings as checks
from raincheck.engine.settings import Settings
from raincheck.engine.workflow import StateMachine
from raincheck.errors import ConfigurationError, InvalidValue
from raincheck.stores.base import Store
from raincheck.stores.commit import CommitObserver
from raincheck.stores.requests import PAGE_LIMIT

if TYPE_CHECKING:
    from raincheck.engine.toolbox import Toolbox

T = TypeVar("T")


def identity(value: T) -> T:
    """Return the value unchanged."""
    return value


def no_subject(_: object) -> None:
    """Return None for any argument."""


class ExecutionMode(StrEnum):
    """Where a body runs."""

    LOOP = "loop"
    """A coroutine, in the event loop."""
    THREAD = "thread"
    """A plain function, in its own thread."""
    PROCESS = "process"
    """Either kind, in a fresh process, so that the body can't affect other code."""


class ToolSettings(TypedDict, total=False):
    """The settings of a tool besides its name. `TaskTool` has the defaults and the meanings."""

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


# Without slots, so that properties derived from the body are computed once and not for every task.
@dataclass(frozen=True, eq=False)
class TaskTool:
    """A function, with the settings of the tasks that run it. Times are in seconds."""

    body: Callable[..., Any]
    name: str
    version: str = "1"
    """A task is run by a worker that has its tool in this version."""
    continues: tuple[str, ...] = ()
    """Older versions whose tasks this version can resume."""
    isolation: Literal["process"] | None = None
    """`"process"`: run the body in its own process, which can be killed and may crash."""
    retry: RetryPolicy = DEFAULT_RETRY
    """How many times to retry, with which backoff, and whether to retry after a crash."""
    retry_on: tuple[type[BaseException], ...] = (Exception,)
    """Errors to retry after."""
    attempt_timeout: float | None = None
    """Limit for one attempt. Time spent parked does not count."""
    timeout: float | None = None
    """Limit for the whole task from its creation, including all waiting."""
    grace: float = 5.0
    """Time for the body to stop when asked to, before it is killed or abandoned."""
    retention: Retention = DEFAULT_RETENTION
    """How long the task is stored after its end."""
    priority: int = 0
    """Order of claims when workers are busy, from -100 to 100; higher first."""
    concurrency: int | None = None
    """Maximum attempts at once in one process."""
    validate: Callable[[Mapping[str, Json]], object] = identity
    """Raises InvalidValue if the arguments of a new task are invalid. The parameter names are checked separately."""
    state_machine: StateMachine | None = None
    """The workflow, if the tool's tasks are instances of a state machine."""
    definition: bytes | None = None
    """The source of a tool that a file defines. Stored with its tasks, which keep using it when the file changes."""
    get_subject: Callable[[Mapping[str, Json]], str | None] = no_subject
    """Returns the subject of a task with these arguments. Tasks can be listed by subject."""
    extract_value: Callable[[Json], Json] = identity
    """Extracts from a result what other tasks get: all of it, unless it is stored in a protocol's format."""

    def __post_init__(self) -> None:
        checks.check_versions(self.name, self.version, self.continues)
        checks.check_policies(self.name, self.retry, self.retry_on, self.retention)
        checks.check_priority(self.name, self.priority)
        for name in ("attempt_timeout", "timeout", "grace"):
            seconds = getattr(self, name)
            if seconds is not None or name == "grace":
                label = f"tool {self.name!r}: {name}"
                checks.check_seconds(label, seconds, minimum=0.001, maximum=checks.MAX_TIMEOUT)
        if self.concurrency is not None:
            checks.check_count(f"tool {self.name!r}: concurrency", self.concurrency, minimum=1, maximum=PAGE_LIMIT)
        if self.isolation not in (None, "process"):
            raise ConfigurationError(f'tool {self.name!r}: isolation is "process" or None, not {self.isolation!r}')
        checks.check_body(self.name, self.body, is_isolated=self.isolation is not None)

    @cached_property
    def is_async(self) -> bool:
        return checks.is_coroutine_function(self.body)

    @cached_property
    def execution_mode(self) -> ExecutionMode:
        if self.isolation == "process":
            return ExecutionMode.PROCESS
        return ExecutionMode.LOOP if self.is_async else ExecutionMode.THREAD

    @cached_property
    def context_parameter(self) -> str | None:
        """The name of the parameter that takes the context, if there is one."""
        return next(iter(checks.context_parameters(self.body)), None)

    @cached_property
    def runnable_tools(self) -> frozenset[Tool]:
        """The versions whose tasks this tool can run."""
        return frozenset(Tool(self.name, version) for version in (self.version, *self.continues))

    @cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(self.body)

    @cached_property
    def _takes_anything(self) -> bool:
        """Return whether the body takes any keyword arguments and has no other parameter except its context."""
        parameters = [
            parameter for parameter in self._signature.parameters.values() if parameter.name != self.context_parameter
        ]
        return [parameter.kind for parameter in parameters] == [inspect.Parameter.VAR_KEYWORD]

    def check_arguments(self, arguments: Mapping[str, object]) -> None:
        """Reject arguments that the body does not accept.

        Raises:
            InvalidValue: the message names them.
        """
        if not isinstance(arguments, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - not every caller is type-checked
            raise InvalidValue(
                f"the arguments of tool {self.name!r} are a mapping of names to values, not {arguments!r}"
            )
        if self._takes_anything and self.context_parameter not in arguments:
            # This holds for all tools of servers, whose functions are called through a wrapper. Binding is slow.
            return
        context = {} if self.context_parameter is None else {self.context_parameter: None}
        try:
            self._signature.bind(**arguments, **context)
        except TypeError as error:
            raise InvalidValue(f"tool {self.name!r} can't be called like that: {error}") from error


def make_tool(body: Callable[..., Any], name: str | None = None, **settings: Unpack[ToolSettings]) -> TaskTool:
    """Make a tool from a function. The name defaults to the function's name.

    Raises:
        ConfigurationError: the settings or the function are invalid.
    """
    return TaskTool(body, name or getattr(body, "__name__", ""), **settings)


class StoreObserver(Protocol):
    """Is notified of what an engine stores, right after it is stored and before the engine continues."""

    def on_create(self, creation: Creation, task: Task) -> None:
        """Called with a new task, or with the existing one that has its idempotency key."""

    async def on_commit(self, change: Change) -> None:
        """Called with each committed change."""


@dataclass(frozen=True, slots=True)
class EngineDeps:
    """What all parts of an engine share."""

    store: Store
    clock: Clock
    namespace: str
    toolbox: "Toolbox"
    settings: Settings
    observer: StoreObserver | None = None

    @property
    def scope(self) -> Scope:
        """The scope of workers: the tasks of every owner in the namespace."""
        return Scope.for_namespace(self.namespace)

    @property
    def on_commit(self) -> CommitObserver | None:
        """The callback for each change that is stored, or None."""
        return None if self.observer is None else self.observer.on_commit


def create_task(
    deps: EngineDeps,
    tool: TaskTool,
    arguments: Mapping[str, Json],
    owner: Owner,
    *,
    caller: Payload | None = None,
    parent_id: TaskId | None = None,
    task_id: TaskId | None = None,
    idempotency_key: str | None = None,
    ttl: timedelta | None = None,
    timeout: timedelta | None = None,
    actor: str = "caller",
    validate: bool = True,
) -> Creation:
    """Create the task for a tool call.

    `timeout` bounds the whole task, unless its tool sets a shorter one. With `validate=False`, the tool's validator is
    skipped because the arguments are already validated, or can't be validated yet.

    Raises:
        InvalidValue: the arguments do not fit the tool, are not JSON or too large, or another value can't be stored.
    """
    tool.check_arguments(arguments)
    if validate:
        tool.validate(arguments)
    now, limits = deps.clock.now(), deps.settings.limits
    tool_timeout = None if tool.timeout is None else timedelta(seconds=tool.timeout)
    timeouts = [limit for limit in (tool_timeout, timeout) if limit is not None]
    ttl = clamp_ttl(ttl, limits.ttl)
    new = NewTask(
        task_id or new_task_id(now),
        deps.namespace,
        owner,
        Tool(tool.name, tool.version),
        encode(arguments, what=f"the arguments of {tool.name!r}"),
        caller=caller,
        parent_id=parent_id,
        idempotency_key=idempotency_key,
        request_digest=None if idempotency_key is None else digest_request(tool.name, arguments),
        priority=tool.priority,
        deadline_at=None if not timeouts else now + min(timeouts),
        retry=tool.retry,
        retention=replace(tool.retention, ttl=ttl) if ttl else tool.retention,
        actor=actor,
        state=None if tool.state_machine is None else tool.state_machine.initial,
        subject=tool.get_subject(arguments),
    )
    return create(new, now, limits)
