"""Actions that compute a value in this process: by calling a Python function, or by evaluating expressions."""

import inspect
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, cast

from raincheck.core.values import Json
from raincheck.engine.execution.context import TaskContext
from raincheck.errors import InvalidValue, ToolError
from raincheck.tracebacks import text_logger
from raincheck.workflows.actions.base import Action, ActionCall, ActionFailed
from raincheck.workflows.definition import Problem
from raincheck.workflows.expressions.template import Template
from raincheck.workflows.parsing.models import ActionModel
from raincheck.workflows.permissions import Permissions

logger = text_logger(__name__)


def find_function(reference: str) -> Callable[..., Any]:
    """Import the function at `module:function`.

    Raises:
        InvalidValue: there is no such function.
    """
    module, _, name = reference.partition(":")
    try:
        found = getattr(import_module(module), name)
    except Exception as error:
        # A module may raise any exception while it is imported.
        raise InvalidValue(f"{reference} can't be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise InvalidValue(f"{reference} is not a function")
    return cast("Callable[..., Any]", found)


class PythonAction(Action):
    """Call a function: a coroutine function is awaited, any other is called in a thread."""

    def __init__(self, model: ActionModel, permissions: Permissions) -> None:
        super().__init__(model, permissions)
        self._function = find_function(str(model.python))
        self._arguments = Template.parse(model.arguments)
        self.label = f"call {model.python}"

    @staticmethod
    def check(model: ActionModel, permissions: Permissions) -> Iterator[Problem]:  # noqa: ARG004 - as in the base class
        try:
            function = find_function(str(model.python))
        except InvalidValue as error:
            yield ("python",), str(error)
            return
        # A function written in C may have no signature.
        with suppress(ValueError):
            signature = inspect.signature(function)
            try:
                signature.bind(**dict.fromkeys(model.arguments))
            except TypeError as error:
                yield ("with",), f"the function does not accept these arguments: {error}"

    async def perform(self, call: ActionCall) -> Json:
        scope = self.scope_with_env(call)
        arguments = cast("Mapping[str, Json]", self._arguments.render(scope))
        try:
            return await self._call(arguments, call.task)
        except ToolError as error:
            raise ActionFailed("python", str(error)) from error
        except Exception as error:
            # The error may contain secrets, so the caller gets only an id. The log has the full error under that id.
            error_id = secrets.token_hex(4)
            logger.exception("step %s: %s (error %s)", call.name, self.label, error_id)
            message = f"it raised {type(error).__name__}: ask its operator about error {error_id}"
            raise ActionFailed("python", message) from error

    async def _call(self, arguments: Mapping[str, Json], task: TaskContext) -> Json:
        if inspect.iscoroutinefunction(self._function):
            return await self._function(**arguments)
        result: Any = await task.step_threads.call(partial(self._function, **arguments))
        return await result if inspect.isawaitable(result) else result


class SetAction(Action):
    """Evaluate a value. The result is that value."""

    def __init__(self, model: ActionModel, permissions: Permissions) -> None:
        super().__init__(model, permissions)
        self._value = Template.parse(model.set)

    async def perform(self, call: ActionCall) -> Json:
        return self._value.render(self.scope_with_env(call))
