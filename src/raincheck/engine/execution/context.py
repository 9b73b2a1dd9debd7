"""What a task's body can see and do, for bodies that are coroutines. `SyncTaskContext` is the same for `def` bodies.

What a task's body can see and do, for bodies that are plain functions: the same names, and nothing to await.
"""

import asyncio
import concurrent.futures
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, NoReturn, ParamSpec, Self, TypeVar, overload

from raincheck._async import runs_in
from raincheck.core.owner import Owner
from raincheck.core.payload import Json, decode, encode
from raincheck.core.records import InputKind
from raincheck.engine.execution.api import Desk, Facts
from raincheck.engine.execution.checkpoints import check_step, fingerprint
from raincheck.engine.execution.threads import StepThreads
from raincheck.engine.inputs import Reply, read_reply, result_of, schema_of
from raincheck.errors import ConfigurationError, InvalidValue

P = ParamSpec("P")
T = TypeVar("T")


class StoredValues(Mapping[str, Json]):
    """A small map that later attempts see too. Reading it costs nothing; each change is written at once."""

    def __init__(self, values: Mapping[str, Json], desk: Desk) -> None:
        self._values = dict(values)
        self._desk = desk

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
        await self._replace({one: value for one, value in self._values.items() if one != name})

    async def _replace(self, values: dict[str, Json]) -> None:
        # Taken over only when it is kept, so that a refused value is not seen.
        await self._desk.set_variables(values)
        self._values = values


class Child:
    """A child task: it is cancelled with its parent."""

    def __init__(self, child_id: str, desk: Desk) -> None:
        self.id = child_id
        self._desk = desk

    async def result(self) -> Json:
        """Its result, when it has ended.

        Raises:
            TaskFailed: it has none.
        """
        return result_of(self.id, await self._desk.child_outcome(self.id))


class TaskIdentity:
    """What a body may know of its task without asking."""

    is_task = True

    def __init__(self, facts: Facts, is_stopped: Callable[[], bool]) -> None:
        self._facts = facts
        self._is_stopped = is_stopped

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: object) -> NoReturn:
        raise ConfigurationError(f"a {cls.__name__} is no argument: make the function a tool with `@tasks.tool`")

    @property
    def id(self) -> str:
        return self._facts.id

    @property
    def owner(self) -> Owner:
        """Whom the task belongs to."""
        return Owner.from_key(self._facts.owner)

    @property
    def caller(self) -> Json:
        """What the server wrote down of the call: identity, trace."""
        return self._facts.caller

    @property
    def attempt(self) -> int:
        """1 at the first try, and one more each time the task goes on after a park or a crash."""
        return self._facts.attempt

    @property
    def cancelled(self) -> bool:
        """Whether the body should stop: the task was cancelled, or another attempt has it, or the server shuts down.

        Nothing that it would write is kept from then on. A body in a loop of its own looks at this now and then.
        """
        return self._is_stopped()


class TaskContext(TaskIdentity):
    """A task, as seen by its body."""

    def __init__(self, facts: Facts, desk: Desk, is_stopped: Callable[[], bool]) -> None:
        super().__init__(facts, is_stopped)
        self._desk = desk
        self.variables = Variables(facts.variables, desk)
        self.threads = StepThreads()
        """Those in which steps run that are plain functions."""

    def shared(self) -> tuple[Facts, Desk, Callable[[], bool]]:
        """What another view of the same task is made of."""
        return self._facts, self._desk, self._is_stopped

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the work is. Cheap, however often: only now and then it is written, and the last one always."""
        await self._desk.report(done, total, message)

    async def status(self, message: str) -> None:
        """Say what the work is at."""
        await self._desk.report(None, None, message)

    @overload
    async def step(self, name: str, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    @overload
    async def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Do something once: `await fn(*args)`, whose result is recorded and returned to later attempts instead.

        The result is what JSON makes of it (a tuple becomes a list), the first time too. A plain function is called in
        a thread. A step is found again by its name and by how often that name was used before, so steps may run side
        by side as long as each has a name of its own or they are begun in the same order each time.

        Raises:
            CheckpointMismatch: it was recorded with other arguments.
            NotJson: the result can't be recorded.
        """
        check_step(name, fn, may_await=True)
        mark = fingerprint("step", args, kwargs)
        turn = await self._desk.begin_step(name, mark)
        if turn.is_recorded:
            return turn.result
        try:
            result = await self._call(fn, args, kwargs)
            # What is recorded is what is returned, so that a body can't tell its first attempt from a later one.
            result = decode(encode(result, what=f"the result of step {name!r}"))
            await self._desk.finish_step(name, turn, mark, result)
        except BaseException:
            # Also if only the waiting for its record was given up: for the body, it is not under way any more.
            self._desk.drop_step(name, turn.occurrence)
            raise
        return result

    @overload
    async def elicit(self, message: str, schema: type[T], *, name: str = "elicit") -> Reply[T]: ...

    @overload
    async def elicit(self, message: str, schema: Mapping[str, Json], *, name: str = "elicit") -> Reply[Json]: ...

    async def elicit(
        self, message: str, schema: type[T] | Mapping[str, Json], *, name: str = "elicit"
    ) -> Reply[T] | Reply[Json]:
        """Ask the user, once, whatever happens in between. The task holds no worker while it waits.

        `schema` is a pydantic model or a JSON Schema.
        """
        # In a thread, since what describes a model may have to be imported first.
        request: Json = {"message": message, "requestedSchema": await asyncio.to_thread(schema_of, schema)}
        return read_reply(await self._desk.ask(InputKind.ELICITATION, name, request), schema)

    async def sample(self, messages: Json, *, name: str = "sample", **parameters: Json) -> Json:
        """Ask the caller's model, once. `parameters` are those of `sampling/createMessage`, as JSON."""
        return await self._desk.ask(InputKind.SAMPLING, name, {"messages": messages, **parameters})

    async def ask(self, kind: InputKind, request: Json, *, name: str) -> Json:
        """Ask the caller in the protocol's own words, once. `elicit` and `sample` are two ways to say it."""
        return await self._desk.ask(kind, name, request)

    async def sleep(self, seconds: float, *, name: str | None = None) -> None:
        """Wait. It goes on counting while no process runs, and a long one holds no worker.

        Branches that sleep side by side give each sleep a name of its own: others are told apart by their length and
        their order, which may be another in the next attempt.
        """
        await self._desk.sleep(seconds, name)

    async def artifact(self, name: str, content: Json) -> None:
        """Keep an intermediate result, which can be read while the task works. The same name replaces it."""
        await self._desk.keep_artifact(name, content)

    async def spawn(self, tool: str, arguments: Mapping[str, Json] | None = None, *, name: str | None = None) -> Child:
        """Start a child task of the same owner, once. Branches that start equal ones give each a name of its own."""
        return Child(await self._desk.spawn(tool, arguments or {}, name), self._desk)

    async def then(self, tool: str, arguments: Mapping[str, Json] | None = None, *, result_as: str = "result") -> str:
        """Name the task that starts when this one completes, with this one's result among its arguments.

        It is created in the transaction that completes this task, and not at all if this task does not complete.
        Returns its id.
        """
        return await self._desk.start_after(tool, arguments or {}, result_as)

    async def _call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 - whatever the step returns
        if inspect.iscoroutinefunction(fn):
            return await fn(*args, **kwargs)
        result: Any = await self.threads.call(partial(fn, *args, **kwargs))
        return await result if inspect.isawaitable(result) else result


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
