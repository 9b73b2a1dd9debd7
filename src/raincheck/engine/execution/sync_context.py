"""The context of a task body that is a plain function: the methods of `TaskContext`, which block here."""

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ParamSpec, Self, TypeVar, overload

from raincheck._async import is_running_in
from raincheck.core.records import InputKind
from raincheck.core.values import Json, decode, encode
from raincheck.engine.execution.checkpoints import fingerprint, not_callable_error
from raincheck.engine.execution.context import StoredValues, TaskApi, TaskContext, TaskIdentity, TaskInfo
from raincheck.engine.inputs import Reply, parse_reply, result_or_raise, to_json_schema
from raincheck.errors import InvalidValue

P = ParamSpec("P")
T = TypeVar("T")


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
        # As in the other class, for threads that the body starts.
        self._writing = threading.Lock()

    def set(self, name: str, value: Json) -> None:
        with self._writing:
            self._wait(self._replace({**self._values, name: value}))

    def remove(self, name: str) -> None:
        with self._writing:
            self._wait(self._replace({key: value for key, value in self._values.items() if key != name}))


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
        if not callable(fn):
            raise not_callable_error(name, fn)
        if inspect.iscoroutinefunction(fn):
            raise InvalidValue(
                f"step {name!r} is a coroutine, but its tool is a plain function: make both of them coroutines, or "
                f"neither"
            )
        mark = fingerprint("step", args, kwargs)
        start = self._wait(self._api.begin_step(name, mark))
        if start.is_recorded:
            return start.result  # type: ignore[return-value] # the recorded value is what it returned, as JSON
        try:
            payload = encode(fn(*args, **kwargs), what=f"the result of step {name!r}")  # type: ignore[arg-type] # encode rejects what is not JSON
            result = decode(payload)
            self._wait(self._api.finish_step(name, start, mark, payload))
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
