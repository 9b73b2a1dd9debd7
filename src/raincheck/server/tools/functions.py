"""Make a tool of a function: its listing by the SDK, and the body that a task runs.

The SDK reads a function's signature, validates arguments against it and converts what it returns to a result. It does
so here for the function without its task parameter. A task runs the function itself: a coroutine in the event loop, a
plain function in a thread, and either of them in a separate process if it is isolated.

A tool that the server's own program calls, with `mcp.call_tool`, runs as a task of the caller that is being served.
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
from pydantic import PydanticUserError, ValidationError
from pydantic_core import to_jsonable_python

from raincheck.core.owner import Owner
from raincheck.core.values import Json
from raincheck.engine.execution.context import TaskContext
from raincheck.engine.execution.sync_context import SyncTaskContext
from raincheck.engine.isolation.function_ref import FACTORY_ATTRIBUTE
from raincheck.engine.settings import check_body, context_parameters, is_coroutine_function
from raincheck.errors import ConfigurationError, InvalidValue, ToolError
from raincheck.server.caller import Caller, CallerContext, OwnerResolver, describe_caller, is_in_task_body
from raincheck.server.disconnect import AbandonedCalls
from raincheck.server.results import (
    SdkErrorMapping,
    TaskRenderer,
    as_json,
    describe_failure,
    encode_result,
    text_of,
)
from raincheck.server.runtime import UNSEEN_TASK_TIMEOUT, ServerRuntime
from raincheck.server.sdk_compat import AnyContext, request_of
from raincheck.server.tools.task_session import SdkContextFactory, run_resolvers, run_rounds
from raincheck.server.wait_policy import WaitPolicy

AnyFunction = Callable[..., Any]

CONTEXT_PARAMETER = "raincheck_context"
"""The parameter of bodies that receives the context. Its name is reserved. All others are the tool's arguments."""

REQUEST_PARAMETER = "raincheck_request"
"""The parameter that passes the request to a tool that the program itself calls. Reserved, too."""


class ServedFunction:
    """A function of the server's author, as a tool."""

    def __init__(self, fn: AnyFunction, name: str, sdk_contexts: SdkContextFactory, **listed: Any) -> None:  # noqa: ANN401 - as the SDK has them
        self.fn = fn
        self.name = name
        self._sdk_contexts = sdk_contexts
        self._structured_output: bool | None = listed.get("structured_output")
        check_body(name, fn, is_isolated=False)
        self._context_name = next(iter(context_parameters(fn)), None)
        self.is_async = is_coroutine_function(fn)
        self.signature = self._signature()
        try:
            self.sdk = self._make_sdk_tool(listed)
        except (InvalidSignature, PydanticUserError, TypeError, ValueError) as error:
            raise ConfigurationError(f"tool {name!r} can't be listed: {error}") from error

    def _make_sdk_tool(self, listed: dict[str, Any]) -> SdkTool:
        return SdkTool.from_function(self.stand_in(_not_callable), name=self.name, **listed)

    @cached_property
    def needs_loop(self) -> bool:
        """Whether it has parameters that need the event loop: the SDK's context, or the values of resolvers."""
        return self.sdk.context_kwarg is not None or bool(self.sdk.resolved_params)

    def stand_in(self, call: Callable[..., Any], *extra: inspect.Parameter) -> AnyFunction:
        """Return a function with the signature of this one, without its task parameter, that runs `call` instead."""
        signature = self.signature.replace(parameters=[*self.signature.parameters.values(), *extra])

        async def stand_in(**arguments: Any) -> Any:  # noqa: ANN401 - whatever is called
            return await call(**arguments)

        _look_like(stand_in, self.fn)
        set_signature(stand_in, signature)
        return stand_in

    def body(self, isolation: str | None) -> AnyFunction:
        """Return the body that a task runs.

        Raises:
            ConfigurationError: another process can't provide the function's parameters.
        """
        if isolation is not None and self.needs_loop:
            raise ConfigurationError(
                f"tool {self.name!r} runs in a separate process, where there is no server: it can take a TaskContext, "
                f"but no Context and no Resolve(...) parameters"
            )
        body = self._loop_body() if self.is_async or self.needs_loop else self._thread_body()
        _look_like(body, self.fn)
        setattr(
            body,
            FACTORY_ATTRIBUTE,
            (f"{__name__}:{make_body.__name__}", {"structured_output": self._structured_output}),
        )
        return body

    def _loop_body(self) -> AnyFunction:
        async def body(*, raincheck_context: TaskContext, **arguments: Json) -> Json:
            task = raincheck_context
            with CallerContext(task.caller, task.id, self.name), SdkErrorMapping():
                values = self._read(arguments)
                first: InputRequiredResult | None = None
                if not self.needs_loop:
                    # It can't see earlier answers, so there is mostly one round, which needs no call parameters.
                    result = self._convert(await self._call(task, values))
                    if not isinstance(result, InputRequiredResult):
                        return encode_result(result)
                    first = result
                params = self._sdk_contexts.call_params(task, self.name, arguments)
                return encode_result(await run_rounds(task, params, partial(self._run_round, task, values), first))

        return body

    def _thread_body(self) -> AnyFunction:
        def body(*, raincheck_context: SyncTaskContext, **arguments: Json) -> Json:
            task = raincheck_context
            with CallerContext(task.caller, task.id, self.name), SdkErrorMapping():
                result = self.fn(**self._read(arguments), **self._with_task(task))
                return encode_result(self._convert(result))

        return body

    async def _run_round(self, task: TaskContext, values: Mapping[str, Any], params: CallToolRequestParams) -> Any:  # noqa: ANN401 - the SDK's results
        context = self._sdk_contexts.task_context(task, params)
        resolved = await run_resolvers(self.sdk, values, context)
        if isinstance(resolved, InputRequiredResult):
            return resolved
        arguments = {**values, **resolved}
        if self.sdk.context_kwarg is not None:
            arguments[self.sdk.context_kwarg] = context
        return self._convert(await self._call(task, arguments))

    async def _call(self, task: TaskContext, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - whatever it returns
        if self.is_async:
            return await self.fn(**arguments, **self._with_task(task))
        sync_task = SyncTaskContext.from_async(task, asyncio.get_running_loop())
        return await task.step_threads.call(partial(self.fn, **arguments, **self._with_task(sync_task)))

    def _convert(self, value: Any) -> CallToolResult | InputRequiredResult:  # noqa: ANN401 - whatever it returned
        try:
            return self.sdk.fn_metadata.convert_result(value)
        except Exception as error:
            # The work is done. Repeating it would not make the result fit.
            raise InvalidValue(f"tool {self.name!r} returned a value that does not fit its return type") from error

    def _read(self, arguments: Mapping[str, Json]) -> dict[str, Any]:
        try:
            return self.sdk.fn_metadata.validate_arguments(dict(arguments))
        except ValidationError as error:
            # They fitted when the task was created, so the tool has changed since.
            content = as_json(describe_failure(self.name, error))
            raise ToolError(f"the stored arguments no longer fit tool {self.name!r}", content) from error

    def _with_task(self, task: TaskContext | SyncTaskContext) -> dict[str, Any]:
        return {} if self._context_name is None else {self._context_name: task}

    def _signature(self) -> inspect.Signature:
        try:
            signature = inspect.signature(self.fn, eval_str=True)
        except (NameError, SyntaxError, TypeError, ValueError) as error:
            raise ConfigurationError(f"the signature of tool {self.name!r} can't be read: {error}") from error
        for reserved in (CONTEXT_PARAMETER, REQUEST_PARAMETER):
            if reserved in signature.parameters:
                raise ConfigurationError(f"tool {self.name!r}: {reserved!r} is a reserved name: rename the parameter")
        arguments = [parameter for name, parameter in signature.parameters.items() if name != self._context_name]
        return signature.replace(parameters=arguments)


def request_parameter(sdk: SdkTool) -> tuple[inspect.Parameter, ...]:
    """Return the parameter by which the SDK passes its context to a function that does not take it."""
    if sdk.context_kwarg is not None:
        return ()
    return (inspect.Parameter(REQUEST_PARAMETER, inspect.Parameter.KEYWORD_ONLY, annotation=Context),)


def make_body(fn: AnyFunction, name: str, *, structured_output: bool | None) -> AnyFunction:
    """Return the body of a function in a separate process, where there is no server."""
    return ServedFunction(fn, name, SdkContextFactory(None), structured_output=structured_output).body("process")


def set_signature(fn: AnyFunction, signature: inspect.Signature) -> None:
    """Make `inspect` and pydantic see this signature instead of the function's own."""
    fn.__signature__ = signature  # type: ignore[attr-defined] # where `inspect` looks first
    annotations = {parameter.name: parameter.annotation for parameter in signature.parameters.values()}
    annotations["return"] = signature.return_annotation
    fn.__annotations__ = {name: kind for name, kind in annotations.items() if kind is not inspect.Parameter.empty}


def _look_like(body: AnyFunction, fn: AnyFunction) -> None:
    """Copy the function's metadata. `functools.wraps` would make `inspect` see the other function's signature."""
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(body, name, getattr(fn, name, getattr(body, name)))


async def _not_callable(**_: object) -> None:
    """Placeholder that the SDK inspects, and never calls."""


def name_of(fn: AnyFunction, name: str | None) -> str:
    """Return the name of a tool: the function's own, unless another is given.

    Raises:
        ConfigurationError: the function has no name.
    """
    tool_name = name or cast("str", getattr(fn, "__name__", ""))
    if not tool_name or tool_name == "<lambda>":
        raise ConfigurationError(f"{fn!r} has no name: pass the name of the tool as name=…")
    return tool_name


class DirectCalls:
    """Runs the tools that the program itself calls as tasks, which no caller sees."""

    def __init__(self, runtime: ServerRuntime, owners: OwnerResolver, wait_policy: WaitPolicy) -> None:
        self._runtime = runtime
        self._owners = owners
        self._abandoned_calls, self._renderer = AbandonedCalls(runtime), TaskRenderer(runtime, wait_policy)

    async def run(self, name: str, arguments: Mapping[str, Any], ctx: AnyContext | None) -> dict[str, Any]:
        """Return the result of a call, made while this request is served, or None."""
        if is_in_task_body():
            # The task would hold its slot while it waits for another task. Enough of them would deadlock.
            raise ConfigurationError(f"a task can't call tool {name!r} directly: call it with `task.spawn`")
        owner = Owner.local() if ctx is None else await self._owners.owner_of(ctx)
        # A caller that waits here can't be asked for input.
        caller = {} if ctx is None else describe_caller(Caller.of(ctx))
        caller["capabilities"] = {}
        engine, arguments = self._runtime.engine, to_jsonable_python(arguments)
        creation = engine.submit(name, arguments, owner=owner, caller=caller, timeout=UNSEEN_TASK_TIMEOUT)
        task = await self._abandoned_calls.wait_for_creation(creation)
        view = await self._abandoned_calls.wait_or_cancel(task, engine.wait(task.id, owner=owner))
        return await self._renderer.render_result(view)

    def function_for(self, sdk: SdkTool) -> Callable[..., Any]:
        """Return the function that runs when the program calls a tool of an `MCPServer`."""
        context_name = sdk.context_kwarg or REQUEST_PARAMETER
        not_arguments = {context_name, *sdk.resolved_params}

        async def call(**values: Any) -> CallToolResult:  # noqa: ANN401 - arguments of any tool
            arguments = {key: value for key, value in values.items() if key not in not_arguments}
            result = await self.run(sdk.name, arguments, request_of(values[context_name]))
            if result.get("isError"):
                raise SdkToolError(text_of(result))
            return CallToolResult.model_validate(result)

        return call
