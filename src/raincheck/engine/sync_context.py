"""What a task's body can see and do, for bodies that are plain functions: the same names, and nothing to await."""

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ParamSpec, Self, TypeVar, overload

from raincheck.core.content import InputKind
from raincheck.core.payload import Json, decode, encode
from raincheck.engine.context import StoredValues, TaskContext, TaskIdentity
from raincheck.engine.desk import Desk, Facts
from raincheck.engine.fingerprint import check_step, fingerprint
from raincheck.engine.reply import Reply, read_reply, result_of, schema_of
from raincheck.engine.timing import runs_in
from raincheck.errors import InvalidValue

P = ParamSpec("P")
T = TypeVar("T")


class BodyStopped(BaseException):
    """Takes a plain function out of a call to its context when the attempt has to stop.

    Not an `Exception`, so that a body that handles errors does not take it for one.
    """


class Waiting:
    """Calls a desk on its event loop, from another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __call__(self, asking: Coroutine[Any, Any, T]) -> T:
        if runs_in(self._loop):
            asking.close()
            raise InvalidValue("a SyncTaskContext is for plain functions: it would wait for the loop it is called in")
        try:
            return asyncio.run_coroutine_threadsafe(asking, self._loop).result()
        except (asyncio.CancelledError, concurrent.futures.CancelledError):
            raise BodyStopped from None
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            # The program ends, and this thread has outlived its engine.
            asking.close()
            raise BodyStopped from None


class SyncVariables(StoredValues):
    """The variables of a task."""

    def __init__(self, values: Mapping[str, Json], desk: Desk, wait: Waiting) -> None:
        super().__init__(values, desk)
        self._wait = wait

    def set(self, name: str, value: Json) -> None:
        self._replace({**self._values, name: value})

    def remove(self, name: str) -> None:
        self._replace({one: value for one, value in self._values.items() if one != name})

    def _replace(self, values: dict[str, Json]) -> None:
        self._wait(self._desk.set_variables(values))
        self._values = values


class SyncChild:
    """A child task: it is cancelled with its parent."""

    def __init__(self, child_id: str, desk: Desk, wait: Waiting) -> None:
        self.id = child_id
        self._desk = desk
        self._wait = wait

    def result(self) -> Json:
        """Its result, when it has ended.

        Raises:
            TaskFailed: it has none.
        """
        return result_of(self.id, self._wait(self._desk.child_outcome(self.id)))


class SyncTaskContext(TaskIdentity):
    """A task, as seen by its body, if that is a plain function. `TaskContext` says what each of these does."""

    def __init__(self, facts: Facts, desk: Desk, is_stopped: Callable[[], bool], wait: Waiting) -> None:
        super().__init__(facts, is_stopped)
        self._desk = desk
        self._wait = wait
        self.variables = SyncVariables(facts.variables, desk, wait)

    @classmethod
    def beside(cls, task: TaskContext, loop: asyncio.AbstractEventLoop) -> Self:
        """The same task for a plain function that a coroutine of its body calls in a thread."""
        return cls(*task.shared(), Waiting(loop))

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the work is."""
        self._wait(self._desk.report(done, total, message))

    def status(self, message: str) -> None:
        """Say what the work is at."""
        self._wait(self._desk.report(None, None, message))

    def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Do something once: `fn(*args)`, in this thread."""
        check_step(name, fn, may_await=False)
        mark = fingerprint("step", args, kwargs)
        turn = self._wait(self._desk.begin_step(name, mark))
        if turn.is_recorded:
            return turn.result  # type: ignore[return-value] # what was recorded is what it returned, as JSON
        try:
            result = decode(encode(fn(*args, **kwargs), what=f"the result of step {name!r}"))  # type: ignore[arg-type] # encode refuses what is not JSON
            self._wait(self._desk.finish_step(name, turn, mark, result))
        except BaseException:
            self._desk.drop_step(name, turn.occurrence)
            raise
        return result  # type: ignore[return-value] # likewise

    @overload
    def elicit(self, message: str, schema: type[T], *, name: str = "elicit") -> Reply[T]: ...

    @overload
    def elicit(self, message: str, schema: Mapping[str, Json], *, name: str = "elicit") -> Reply[Json]: ...

    def elicit(
        self, message: str, schema: type[T] | Mapping[str, Json], *, name: str = "elicit"
    ) -> Reply[T] | Reply[Json]:
        """Ask the user, once."""
        request: Json = {"message": message, "requestedSchema": schema_of(schema)}
        return read_reply(self._wait(self._desk.ask(InputKind.ELICITATION, name, request)), schema)

    def sample(self, messages: Json, *, name: str = "sample", **parameters: Json) -> Json:
        """Ask the caller's model, once."""
        return self._wait(self._desk.ask(InputKind.SAMPLING, name, {"messages": messages, **parameters}))

    def sleep(self, seconds: float, *, name: str | None = None) -> None:
        """Wait, for a long time too."""
        self._wait(self._desk.sleep(seconds, name))

    def artifact(self, name: str, content: Json) -> None:
        """Keep an intermediate result."""
        self._wait(self._desk.keep_artifact(name, content))

    def spawn(self, tool: str, arguments: Mapping[str, Json] | None = None, *, name: str | None = None) -> SyncChild:
        """Start a child task of the same owner, once."""
        return SyncChild(self._wait(self._desk.spawn(tool, arguments or {}, name)), self._desk, self._wait)

    def then(self, tool: str, arguments: Mapping[str, Json] | None = None, *, result_as: str = "result") -> str:
        """Name the task that starts when this one completes."""
        return self._wait(self._desk.start_after(tool, arguments or {}, result_as))
