"""The context of a task body: `TaskContext` for coroutines and `SyncTaskContext` for plain functions.

Both have the same methods; those of `SyncTaskContext` block instead of being awaited.
"""

import asyncio
import concurrent.futures
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, NoReturn, ParamSpec, Self, TypeVar, overload

from raincheck._async import is_running_in
from raincheck.core.owner import Owner
from raincheck.core.payload import Json, decode, encode
from raincheck.core.records import InputKind
from raincheck.engine.execution.api import TaskApi, TaskInfo
from raincheck.engine.execution.checkpoints import check_step, fingerprint
from raincheck.engine.execution.threads import StepThreads
from raincheck.engine.inputs import Reply, parse_reply, result_or_raise, to_json_schema
from raincheck.errors import ConfigurationError, InvalidValue

P = ParamSpec("P")
T = TypeVar("T")


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


class Variables(StoredValues):
    """The variables of a task."""

    async def set(self, name: str, value: Json) -> None:
        await self._replace({**self._values, name: value})

    async def remove(self, name: str) -> None:
        await self._replace({key: value for key, value in self._values.items() if key != name})

    async def _replace(self, values: dict[str, Json]) -> None:
        # Updated only after the write, so that a rejected value is not seen.
        await self._api.set_variables(values)
        self._values = values


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


class TaskContext(TaskIdentity):
    """The context of a task whose body is a coroutine."""

    def __init__(self, info: TaskInfo, api: TaskApi, is_stopped: Callable[[], bool]) -> None:
        super().__init__(info, is_stopped)
        self._api = api
        self.variables = Variables(info.variables, api)
        self.step_threads = StepThreads()
        """The threads that run steps that are plain functions."""

    def internals(self) -> tuple[TaskInfo, TaskApi, Callable[[], bool]]:
        """Return the parts to make another context of the same task."""
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
        check_step(name, fn, may_await=True)
        mark = fingerprint("step", args, kwargs)
        start = await self._api.begin_step(name, mark)
        if start.is_recorded:
            return start.result
        try:
            result = await self._call(fn, args, kwargs)
            # Return what is recorded, so that a body can't tell its first attempt from a later one.
            result = decode(encode(result, what=f"the result of step {name!r}"))
            await self._api.finish_step(name, start, mark, result)
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
        if inspect.iscoroutinefunction(fn):
            return await fn(*args, **kwargs)
        result: Any = await self.step_threads.call(partial(fn, *args, **kwargs))
        return await result if inspect.isawaitable(result) else result


class BodyStopped(BaseException):
    """Interrupts a plain function in a call to its context when the attempt has to stop.

    Not an `Exception`, so that a body that handles errors does not catch it.
    """


class LoopCaller:
    """Calls a task API on its event loop from another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __call__(self, call: Coroutine[Any, Any, T]) -> T:
        if is_running_in(self._loop):
            call.close()
            raise InvalidValue(
                "a SyncTaskContext is for plain functions, and blocks the event loop: use a TaskContext in coroutines"
            )
        try:
            return asyncio.run_coroutine_threadsafe(call, self._loop).result()
        except (asyncio.CancelledError, concurrent.futures.CancelledError):
            raise BodyStopped from None
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            # The program is ending, and this thread has outlived its engine.
            call.close()
            raise BodyStopped from None


class SyncVariables(StoredValues):
    """The variables of a task."""

    def __init__(self, values: Mapping[str, Json], api: TaskApi, wait: LoopCaller) -> None:
        super().__init__(values, api)
        self._wait = wait

    def set(self, name: str, value: Json) -> None:
        self._replace({**self._values, name: value})

    def remove(self, name: str) -> None:
        self._replace({key: value for key, value in self._values.items() if key != name})

    def _replace(self, values: dict[str, Json]) -> None:
        self._wait(self._api.set_variables(values))
        self._values = values


class SyncChild:
    """A child task. It is cancelled with its parent."""

    def __init__(self, child_id: str, api: TaskApi, wait: LoopCaller) -> None:
        self.id = child_id
        self._api = api
        self._wait = wait

    def result(self) -> Json:
        """Wait until the child has ended, and return its result.

        Raises:
            TaskFailed: the child has no result.
        """
        return result_or_raise(self.id, self._wait(self._api.child_outcome(self.id)))


class SyncTaskContext(TaskIdentity):
    """The context of a task whose body is a plain function. See `TaskContext` for the methods."""

    def __init__(self, info: TaskInfo, api: TaskApi, is_stopped: Callable[[], bool], wait: LoopCaller) -> None:
        super().__init__(info, is_stopped)
        self._api = api
        self._wait = wait
        self.variables = SyncVariables(info.variables, api, wait)

    @classmethod
    def from_async(cls, task: TaskContext, loop: asyncio.AbstractEventLoop) -> Self:
        """Return the context of the same task, for a plain function that the body's coroutine calls in a thread."""
        return cls(*task.internals(), LoopCaller(loop))

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress."""
        self._wait(self._api.report(done, total, message))

    def status(self, message: str) -> None:
        """Set the status message."""
        self._wait(self._api.report(None, None, message))

    def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a step once: `fn(*args)`, in this thread."""
        check_step(name, fn, may_await=False)
        mark = fingerprint("step", args, kwargs)
        start = self._wait(self._api.begin_step(name, mark))
        if start.is_recorded:
            return start.result  # type: ignore[return-value] # the recorded value is what it returned, as JSON
        try:
            result = decode(encode(fn(*args, **kwargs), what=f"the result of step {name!r}"))  # type: ignore[arg-type] # encode rejects what is not JSON
            self._wait(self._api.finish_step(name, start, mark, result))
        except BaseException:
            self._api.drop_step(name, start.occurrence)
            raise
        return result  # type: ignore[return-value] # as above

    @overload
    def elicit(self, message: str, schema: type[T], *, name: str = "elicit") -> Reply[T]: ...

    @overload
    def elicit(self, message: str, schema: Mapping[str, Json], *, name: str = "elicit") -> Reply[Json]: ...

    def elicit(
        self, message: str, schema: type[T] | Mapping[str, Json], *, name: str = "elicit"
    ) -> Reply[T] | Reply[Json]:
        """Ask the user, once."""
        request: Json = {"message": message, "requestedSchema": to_json_schema(schema)}
        return parse_reply(self._wait(self._api.ask(InputKind.ELICITATION, name, request)), schema)

    def sample(self, messages: Json, *, name: str = "sample", **parameters: Json) -> Json:
        """Ask the caller's model, once."""
        return self._wait(self._api.ask(InputKind.SAMPLING, name, {"messages": messages, **parameters}))

    def sleep(self, seconds: float, *, name: str | None = None) -> None:
        """Sleep, for a long time too."""
        self._wait(self._api.sleep(seconds, name))

    def artifact(self, name: str, content: Json) -> None:
        """Store an intermediate result."""
        self._wait(self._api.store_artifact(name, content))

    def spawn(self, tool: str, arguments: Mapping[str, Json] | None = None, *, name: str | None = None) -> SyncChild:
        """Start a child task of the same owner, once."""
        return SyncChild(self._wait(self._api.spawn(tool, arguments or {}, name)), self._api, self._wait)

    def then(self, tool: str, arguments: Mapping[str, Json] | None = None, *, result_as: str = "result") -> str:
        """Set the task that starts when this one completes."""
        return self._wait(self._api.start_after(tool, arguments or {}, result_as))
