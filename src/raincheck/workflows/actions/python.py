"""Steps that call a Python function."""

import inspect
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, cast

from raincheck.core.payload import Json
from raincheck.engine.execution.context import TaskContext
from raincheck.errors import InvalidValue, ToolError
from raincheck.tracebacks import text_logger
from raincheck.workflows.actions.base import ActionFailed, Occasion
from raincheck.workflows.expressions.template import Template
from raincheck.workflows.permissions import Surroundings

logger = text_logger(__name__)


def find_function(place: str) -> Callable[..., Any]:
    """The function at `module:function`.

    Raises:
        InvalidValue: there is none.
    """
    module, _, name = place.partition(":")
    try:
        found = getattr(import_module(module), name)
    except Exception as error:
        # Whatever the module does while it is imported.
        raise InvalidValue(f"{place} can't be had: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise InvalidValue(f"{place} is not a function")
    return cast("Callable[..., Any]", found)


class Python:
    """A function: a coroutine is awaited, another is called in a thread."""

    waits = False

    def __init__(self, place: str, arguments: Mapping[str, Json], surroundings: Surroundings) -> None:
        self._function = find_function(place)
        self._arguments = Template.parse(arguments)
        self._surroundings = surroundings
        self.words = f"call {place}"

    async def perform(self, occasion: Occasion) -> Json:
        scope = occasion.within(self._surroundings.variables())
        arguments = cast("Mapping[str, Json]", self._arguments.render(scope))
        try:
            return await self._call(arguments, occasion.task)
        except ToolError as error:
            raise ActionFailed("python", str(error)) from error
        except Exception as error:
            # It may hold anything, so callers get an id, under which the log has the whole of it.
            error_id = secrets.token_hex(4)
            logger.exception("step %s: %s (error %s)", occasion.name, self.words, error_id)
            message = f"it raised {type(error).__name__}: its operator finds it as error {error_id}"
            raise ActionFailed("python", message) from error

    async def _call(self, arguments: Mapping[str, Json], task: TaskContext) -> Json:
        if inspect.iscoroutinefunction(self._function):
            return await self._function(**arguments)
        result: Any = await task.threads.call(partial(self._function, **arguments))
        return await result if inspect.isawaitable(result) else result
