"""A function as a tool: what the SDK lists of it, and what a task runs of it.

The SDK reads a function's signature, validates arguments against it and makes results of what it returns; we let it,
for a function without its task parameter. A task runs the function itself: a coroutine in the event loop, a plain
function in a thread, either in a process of its own.

Tools that the server's own program calls, with `mcp.call_tool`: a task of whoever is being served.
"""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any, cast

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import InvalidSignature
from mcp.server.mcpserver.exceptions import ToolError as SdkToolError
from mcp.server.mcpserver.tools import Tool as SdkTool
from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult
from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from raincheck.core.owner import Owner
from raincheck.core.payload import Json
from raincheck.engine.execution.context import SyncTaskContext, TaskContext
from raincheck.engine.isolation.function_ref import MADE_BY
from raincheck.engine.settings import check_body, context_parameters, is_coroutine_function
from raincheck.errors import ConfigurationError, InvalidValue, ToolError
from raincheck.server.disconnect import Leaving
from raincheck.server.identity import ActingFor, describe_caller, is_acting
from raincheck.server.render import Showing
from raincheck.server.runtime import UNSEEN_FOR, Running
from raincheck.server.sdk_compat import request_of
from raincheck.server.tools.results import TellingErrors, as_json, describe_failure, keep_result, text_of
from raincheck.server.tools.task_session import Workplace, play_rounds, resolve

AnyFunction = Callable[..., Any]

CONTEXT = "raincheck_context"
"""The parameter of bodies that takes the context. A name of our own: the others are the tool's arguments."""

REQUEST = "raincheck_request"
"""The parameter by which the program's own calls of a tool tell in whose request they are made. Likewise."""


class ServedFunction:
    """A function of the server's author."""

    def __init__(self, fn: AnyFunction, name: str, workplace: Workplace, **listed: Any) -> None:  # noqa: ANN401 - as the SDK has them
        self.fn = fn
        self.name = name
        self._workplace = workplace
        self._structured_output: bool | None = listed.get("structured_output")
        check_body(name, fn, is_isolated=False)
        self._task_name = next(iter(context_parameters(fn)), None)
        self.is_async = is_coroutine_function(fn)
        self.signature = self._signature()
        try:
            self.sdk = SdkTool.from_function(self.stand_in(_not_callable), name=name, **listed)
        except (InvalidSignature, TypeError, ValueError) as error:
            raise ConfigurationError(f"tool {name!r} can't be listed: {error}") from error

    @cached_property
    def needs_loop(self) -> bool:
        """Whether it takes what only the event loop has: the SDK's context, or what resolvers find out."""
        return self.sdk.context_kwarg is not None or bool(self.sdk.resolved_params)

    def stand_in(self, call: Callable[..., Any], *extra: inspect.Parameter) -> AnyFunction:
        """A function that looks like this one without its task parameter, and does something else."""
        signature = self.signature.replace(parameters=[*self.signature.parameters.values(), *extra])

        async def stand_in(**arguments: Any) -> Any:  # noqa: ANN401 - whatever is called
            return await call(**arguments)

        _look_like(stand_in, self.fn)
        stand_in.__signature__ = signature  # type: ignore[attr-defined] # where `inspect` looks first
        notes = {one.name: one.annotation for one in signature.parameters.values()}
        notes["return"] = signature.return_annotation
        stand_in.__annotations__ = {one: note for one, note in notes.items() if note is not inspect.Parameter.empty}
        return stand_in

    def body(self, isolation: str | None) -> AnyFunction:
        """What a task runs.

        Raises:
            ConfigurationError: another process can't give the function what it takes.
        """
        if isolation is not None and self.needs_loop:
            raise ConfigurationError(
                f"tool {self.name!r} runs in a process of its own, where there is no server: it can take a "
                f"TaskContext, and neither a Context nor Resolve(...) parameters"
            )
        body = self._loop_body() if self.is_async or self.needs_loop else self._plain_body()
        _look_like(body, self.fn)
        setattr(body, MADE_BY, (f"{__name__}:{make_body.__name__}", {"structured_output": self._structured_output}))
        return body

    def _loop_body(self) -> AnyFunction:
        async def body(*, raincheck_context: TaskContext, **arguments: Json) -> Json:
            task = raincheck_context
            with ActingFor(task.caller, task.id, self.name), TellingErrors():
                values = self._read(arguments)
                first: InputRequiredResult | None = None
                if not self.needs_loop:
                    # It can't see what was answered, so mostly there is one round, which needs nothing of a call.
                    result = self._convert(await self._call(task, values))
                    if not isinstance(result, InputRequiredResult):
                        return keep_result(result)
                    first = result
                params, play = (
                    self._workplace.first_round(task, self.name, arguments),
                    partial(self._play, task, values),
                )
                return keep_result(await play_rounds(task, params, play, first))

        return body

    def _plain_body(self) -> AnyFunction:
        def body(*, raincheck_context: SyncTaskContext, **arguments: Json) -> Json:
            task = raincheck_context
            with ActingFor(task.caller, task.id, self.name), TellingErrors():
                result = self.fn(**self._read(arguments), **self._with_task(task))
                return keep_result(self._convert(result))

        return body

    async def _play(self, task: TaskContext, values: Mapping[str, Any], params: CallToolRequestParams) -> Any:  # noqa: ANN401 - the SDK's results
        context = self._workplace.context(task, params)
        found = await resolve(self.sdk, values, context)
        if isinstance(found, InputRequiredResult):
            return found
        given = {**values, **found}
        if self.sdk.context_kwarg is not None:
            given[self.sdk.context_kwarg] = context
        return self._convert(await self._call(task, given))

    async def _call(self, task: TaskContext, given: Mapping[str, Any]) -> Any:  # noqa: ANN401 - whatever it returns
        if self.is_async:
            return await self.fn(**given, **self._with_task(task))
        beside = SyncTaskContext.beside(task, asyncio.get_running_loop())
        return await task.threads.call(partial(self.fn, **given, **self._with_task(beside)))

    def _convert(self, value: Any) -> CallToolResult | InputRequiredResult:  # noqa: ANN401 - whatever it returned
        try:
            return self.sdk.fn_metadata.convert_result(value)
        except Exception as error:
            # The work is done. Doing it again would not make it fit.
            raise InvalidValue(f"tool {self.name!r} returned what does not fit its return type") from error

    def _read(self, arguments: Mapping[str, Json]) -> dict[str, Any]:
        try:
            return self.sdk.fn_metadata.validate_arguments(dict(arguments))
        except ValidationError as error:
            # They fitted when the task was made, so the tool has changed since.
            content = as_json(describe_failure(self.name, error))
            raise ToolError(f"the arguments do not fit tool {self.name!r} any more", content) from error

    def _with_task(self, task: TaskContext | SyncTaskContext) -> dict[str, Any]:
        return {} if self._task_name is None else {self._task_name: task}

    def _signature(self) -> inspect.Signature:
        try:
            signature = inspect.signature(self.fn, eval_str=True)
        except (NameError, SyntaxError, TypeError, ValueError) as error:
            raise ConfigurationError(f"the signature of tool {self.name!r} can't be read: {error}") from error
        for ours in (CONTEXT, REQUEST):
            if ours in signature.parameters:
                raise ConfigurationError(f"tool {self.name!r}: {ours!r} is our own name: give the parameter another")
        kept = [one for one in signature.parameters.values() if one.name != self._task_name]
        return signature.replace(parameters=kept)


def request_parameter(sdk: SdkTool) -> tuple[inspect.Parameter, ...]:
    """What lets the SDK hand over its context to a function that does not ask for it."""
    if sdk.context_kwarg is not None:
        return ()
    return (inspect.Parameter(REQUEST, inspect.Parameter.KEYWORD_ONLY, annotation=Context),)


def make_body(fn: AnyFunction, name: str, *, structured_output: bool | None) -> AnyFunction:
    """The body of a function in a process of its own, where there is no server."""
    return ServedFunction(fn, name, Workplace(None), structured_output=structured_output).body("process")


def _look_like(body: AnyFunction, fn: AnyFunction) -> None:
    """Not `functools.wraps`: that would make `inspect` see the other function's signature."""
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(body, name, getattr(fn, name, getattr(body, name)))


async def _not_callable(**_: object) -> None:
    """The SDK looks at it, and never calls it."""


def name_of(fn: AnyFunction, name: str | None) -> str:
    """The name of a tool: the function's own, unless another is given.

    Raises:
        ConfigurationError: it has none.
    """
    found = name or cast("str", getattr(fn, "__name__", ""))
    if not found or found == "<lambda>":
        raise ConfigurationError(f"{fn!r} has no name of its own: give the tool one, with name=…")
    return found


def caller_of(sdk: SdkTool, running: Running) -> Callable[..., Any]:
    """What runs where the program calls the tool. It waits for the task, which nobody else sees."""
    name, context_name = sdk.name, sdk.context_kwarg or REQUEST
    not_arguments = {context_name, *sdk.resolved_params}
    leaving, showing = Leaving(running), Showing(running)

    async def call(**values: Any) -> CallToolResult:  # noqa: ANN401 - arguments of any tool
        if is_acting():
            # It would hold its place while it waits for another task, and enough of them would wait for ever.
            raise ConfigurationError(f"a task that needs tool {name!r} calls it with `task.spawn`")
        arguments = {key: value for key, value in values.items() if key not in not_arguments}
        ctx = request_of(values[context_name])
        owner = Owner.local() if ctx is None else await running.owner_of(ctx)
        # Nobody who waits here could be asked anything.
        caller = {} if ctx is None else describe_caller(ctx)
        caller["capabilities"] = {}
        engine = running.engine
        creating = engine.submit(name, to_jsonable_python(arguments), owner=owner, caller=caller, timeout=UNSEEN_FOR)
        task = await leaving.create(creating)
        result = await showing.answer(await leaving.while_wanted(task, engine.wait(task.id, owner=owner)))
        if result.get("isError"):
            raise SdkToolError(text_of(result))
        return CallToolResult.model_validate(result)

    return call
