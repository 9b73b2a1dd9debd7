"""The context of a task body: `TaskContext` for coroutines. Plain functions get a `sync_context.SyncTaskContext`.

A context makes the calls of `TaskApi`, the same wherever the body runs: in the event loop, in a thread or in a process.
All their values are JSON. A call after the attempt was asked to stop raises `asyncio.CancelledError`.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NoReturn, ParamSpec, Protocol, TypeVar, overload

from raincheck._async import start_in_thread
from raincheck.core.owner import Owner
from raincheck.core.records import InputKind
from raincheck.core.values import Json, Payload, decode, encode
from raincheck.engine.execution.checkpoints import fingerprint, not_callable_error
from raincheck.engine.inputs import Reply, TaskOutcome, parse_reply, result_or_raise, to_json_schema
from raincheck.errors import ConfigurationError

P = ParamSpec("P")
T = TypeVar("T")

MAX_STEP_THREADS = 32
"""Maximum steps of one body that run in threads at once. The others wait."""


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """Facts about the task that a body has from the start."""

    id: str
    owner: str
    """The owner's key."""
    attempt: int
    caller: Json
    variables: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class StepStart:
    """The recorded result of a step that an earlier attempt finished, or else the number of this use of its name."""

    occurrence: int
    is_recorded: bool = False
    result: Json = None


class TaskApi(Protocol):
    """The calls of a context."""

    async def report(self, done: float | None, total: float | None, message: str | None) -> None:
        """Report progress. Written at intervals, and the last report always."""
        ...

    async def begin_step(self, name: str, fingerprint: str) -> StepStart:
        """Return the step's recorded result if an earlier attempt finished it; if not, mark it as in progress."""
        ...

    async def finish_step(self, name: str, start: StepStart, fingerprint: str, result: Payload) -> None:
        """Record the result of a step in progress."""
        ...

    def drop_step(self, name: str, occurrence: int) -> None:
        """Discard a step in progress. May be called from any thread."""
        ...

    async def ask(self, kind: InputKind, name: str, request: Json) -> Json:
        """Ask the caller, once, and wait for the answer."""
        ...

    async def sleep(self, seconds: float, name: str | None) -> None:
        """Return when this many seconds have passed since an attempt first requested the sleep."""
        ...

    async def set_variables(self, variables: Mapping[str, Json]) -> None:
        """Store the whole map of variables."""
        ...

    async def store_artifact(self, name: str, content: Json) -> None:
        """Store an intermediate result."""
        ...

    async def spawn(self, tool: str, arguments: Mapping[str, Json], name: str | None) -> str:
        """Start a child task, once, and return its id."""
        ...

    async def child_outcome(self, child_id: str) -> TaskOutcome:
        """Wait until the child has ended, and return its outcome."""
        ...

    async def start_after(self, tool: str, arguments: Mapping[str, Json], result_as: str) -> str:
        """Set a task to start when this one completes, and return its id."""
        ...


class StoredValues(Mapping[str, Json]):
    """A small map that later attempts see too. Reads are free, and each change is written at once."""

    def __init__(self, values: Mapping[str, Json], api: TaskApi) -> None:
        self._values = dict(values)
        self._api = api

    def __getitem__(self, name: str) -> Json:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    async def _replace(self, values: dict[str, Json]) -> None:
        # Updated only after the write, so that a rejected value is not seen.
        await self._api.set_variables(values)
        self._values = values


class Variables(StoredValues):
    """The variables of a task."""

    def __init__(self, values: Mapping[str, Json], api: TaskApi) -> None:
        super().__init__(values, api)
        # Each write stores the whole map, so concurrent branches would overwrite each other's variables.
        self._writing = asyncio.Lock()

    async def set(self, name: str, value: Json) -> None:
        async with self._writing:
            await self._replace({**self._values, name: value})

    async def remove(self, name: str) -> None:
        async with self._writing:
            await self._replace({key: value for key, value in self._values.items() if key != name})


class Child:
    """A child task. It is cancelled with its parent."""

    def __init__(self, child_id: str, api: TaskApi) -> None:
        self.id = child_id
        self._api = api

    async def result(self) -> Json:
        """Wait until the child has ended, and return its result.

        Raises:
            TaskFailed: the child has no result.
        """
        return result_or_raise(self.id, await self._api.child_outcome(self.id))


class TaskIdentity:
    """Facts about the task that a body can read without a call."""

    is_task = True

    def __init__(self, info: TaskInfo, is_stopped: Callable[[], bool]) -> None:
        self._info = info
        self._is_stopped = is_stopped

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: object) -> NoReturn:
        raise ConfigurationError(
            f"a {cls.__name__} is not an argument of callers: register the function with `@tasks.tool`"
        )

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def owner(self) -> Owner:
        """The owner of the task."""
        return Owner.from_key(self._info.owner)

    @property
    def caller(self) -> Json:
        """What the server recorded of the call: identity, trace."""
        return self._info.caller

    @property
    def attempt(self) -> int:
        """The attempt's number: 1 at first, and one more each time the task resumes after a park or a crash."""
        return self._info.attempt

    @property
    def cancelled(self) -> bool:
        """Whether the body should stop: the task was cancelled or taken over, or the server is shutting down.

        Nothing that the body writes is stored from then on. A body that loops without awaiting its context should check
        this regularly.
        """
        return self._is_stopped()


class StepThreads:
    """The threads of one body's steps: limited in number, and tracked until they end."""

    def __init__(self) -> None:
        self.running: set[asyncio.Future[Any]] = set()

    @cached_property
    def _limit(self) -> asyncio.Semaphore:
        # Created on first use: most bodies need none.
        return asyncio.Semaphore(MAX_STEP_THREADS)

    async def call(self, fn: Callable[[], T]) -> T:
        """Call the function in a new thread, and wait for its result."""
        await self._limit.acquire()
        try:
            future = start_in_thread(fn, name="raincheck-step")
        except RuntimeError:
            # There are too many threads on this machine.
            self._limit.release()
            raise
        self.running.add(future)
        future.add_done_callback(self._end)
        # Shielded, since the thread continues even when its waiter is cancelled.
        return await asyncio.shield(future)

    def _end(self, future: "asyncio.Future[Any]") -> None:
        self.running.discard(future)
        self._limit.release()


class TaskContext(TaskIdentity):
    """The context of a task whose body is a coroutine."""

    def __init__(self, info: TaskInfo, api: TaskApi, is_stopped: Callable[[], bool]) -> None:
        super().__init__(info, is_stopped)
        self._api = api
        self.variables = Variables(info.variables, api)
        self.step_threads = StepThreads()
        """The threads that run steps that are plain functions."""

    def internals(self) -> tuple[TaskInfo, TaskApi, Callable[[], bool]]:
        """Return the parts from which the engine makes another context of the same task."""
        return self._info, self._api, self._is_stopped

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress. Cheap at any rate: reports are written at intervals, and the last one always."""
        await self._api.report(done, total, message)

    async def status(self, message: str) -> None:
        """Set the status message."""
        await self._api.report(None, None, message)

    @overload
    async def step(self, name: str, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    @overload
    async def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run a step once: `await fn(*args)`. Later attempts get the recorded result instead.

        The result is converted to JSON and back (a tuple becomes a list), the first time too. A plain function is
        called in a thread. A step is matched by its name and the number of earlier uses of that name, so steps may run
        concurrently if each has its own name or they start in the same order each time.

        Raises:
            CheckpointMismatch: the step was recorded with other arguments.
            NotJson: the result can't be recorded.
        """
        if not callable(fn):
            raise not_callable_error(name, fn)
        mark = fingerprint("step", args, kwargs)
        start = await self._api.begin_step(name, mark)
        if start.is_recorded:
            return start.result
        try:
            result = await (fn(*args, **kwargs) if inspect.iscoroutinefunction(fn) else self._call(fn, args, kwargs))
            payload = encode(result, what=f"the result of step {name!r}")
            # Return what is recorded, so that a body can't tell its first attempt from a later one.
            result = decode(payload)
            await self._api.finish_step(name, start, mark, payload)
        except BaseException:
            # Also if only the wait for the record was cancelled: for the body, the step is no longer in progress.
            self._api.drop_step(name, start.occurrence)
            raise
        return result

    @overload
    async def elicit(self, message: str, schema: type[T], *, name: str = "elicit") -> Reply[T]: ...

    @overload
    async def elicit(self, message: str, schema: Mapping[str, Json], *, name: str = "elicit") -> Reply[Json]: ...

    async def elicit(
        self, message: str, schema: type[T] | Mapping[str, Json], *, name: str = "elicit"
    ) -> Reply[T] | Reply[Json]:
        """Ask the user, once across all attempts. The task holds no worker slot while it waits.

        `schema` is a pydantic model or a JSON Schema.
        """
        # In a thread, since describing a model may require an import first.
        request: Json = {"message": message, "requestedSchema": await asyncio.to_thread(to_json_schema, schema)}
        return parse_reply(await self._api.ask(InputKind.ELICITATION, name, request), schema)

    async def sample(self, messages: Json, *, name: str = "sample", **parameters: Json) -> Json:
        """Ask the caller's model, once. `parameters` are those of `sampling/createMessage`, as JSON."""
        return await self._api.ask(InputKind.SAMPLING, name, {"messages": messages, **parameters})

    async def ask(self, kind: InputKind, request: Json, *, name: str) -> Json:
        """Send the caller a request in the protocol's format, once. `elicit` and `sample` are built on it."""
        return await self._api.ask(kind, name, request)

    async def sleep(self, seconds: float, *, name: str | None = None) -> None:
        """Sleep. Time counts while no process runs, and a long sleep holds no worker slot.

        Branches that sleep concurrently give each sleep a separate name. Unnamed sleeps are distinguished by their
        length and their order, which may differ in the next attempt.
        """
        await self._api.sleep(seconds, name)

    async def artifact(self, name: str, content: Json) -> None:
        """Store an intermediate result, readable while the task is working. The same name replaces it."""
        await self._api.store_artifact(name, content)

    async def spawn(self, tool: str, arguments: Mapping[str, Json] | None = None, *, name: str | None = None) -> Child:
        """Start a child task of the same owner, once. Branches that start equal children give each a separate name."""
        return Child(await self._api.spawn(tool, arguments or {}, name), self._api)

    async def then(self, tool: str, arguments: Mapping[str, Json] | None = None, *, result_as: str = "result") -> str:
        """Set the task that starts when this one completes, with this one's result among its arguments.

        The new task is created in the transaction that completes this task, and not at all if this task does not
        complete. Returns its id.
        """
        return await self._api.start_after(tool, arguments or {}, result_as)

    async def _call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - any result of a step
        """Call a plain function in a thread, and await what it returns if that can be awaited."""
        result: Any = await self.step_threads.call(partial(fn, *args, **kwargs))
        return await result if inspect.isawaitable(result) else result
