"""Actions that compute a value in this process: by calling a Python function, or by evaluating expressions."""

import hashlib
import inspect
import os
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
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


def find_function(reference: str, folder: Path) -> Callable[..., Any]:
    """Import the function at `module:function`: of an installed module, or of a file in this or the current folder.

    Raises:
        InvalidValue: there is no such function.
    """
    module, _, name = reference.partition(":")
    try:
        found = getattr(_load_module(module, folder), name)
    except Exception as error:
        # A module may raise any exception while it is imported.
        hint = _sibling_hint(error, folder) if isinstance(error, ModuleNotFoundError) else ""
        raise InvalidValue(f"{reference} can't be imported: {type(error).__name__}: {error}{hint}") from error
    if not callable(found):
        raise InvalidValue(f"{reference} is not a function")
    return cast("Callable[..., Any]", found)


def _load_module(name: str, folder: Path) -> ModuleType:
    """Import an installed module, or else load one of the folders by its path.

    The folders are not put on `sys.path`: a file that a step writes there must not be imported in the place of a
    module that a library looks for.
    """
    if not _is_installed(name):
        for parent in (folder, Path.cwd()):
            path = parent.joinpath(*name.split("."))
            if path.with_suffix(".py").is_file() or (path / "__init__.py").is_file():
                # A package that consists of the folder, so that its modules can import each other relatively.
                package = f"raincheck_workflow_files_{hashlib.sha256(os.fsencode(parent)).hexdigest()[:12]}"
                if package not in sys.modules:
                    sys.modules[package] = ModuleType(package)
                    sys.modules[package].__path__ = [str(parent)]
                return import_module(f"{package}.{name}")
    return import_module(name)


def _is_installed(name: str) -> bool:
    """Return whether Python finds a module of this name by itself. A file must not take its place."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
    except ValueError:
        # It is loaded, and does not say from where.
        return True


def _sibling_hint(error: ModuleNotFoundError, folder: Path) -> str:
    sibling = (error.name or "").partition(".")[0]
    is_sibling = sibling and ((folder / f"{sibling}.py").is_file() or (folder / sibling / "__init__.py").is_file())
    return f". Modules beside the file import each other relatively: from . import {sibling}" if is_sibling else ""


class PythonAction(Action):
    """Call a function: a coroutine function is awaited, any other is called in a thread."""

    def __init__(self, model: ActionModel, permissions: Permissions) -> None:
        super().__init__(model, permissions)
        self._function = find_function(str(model.python), permissions.folder)
        self._arguments = Template.parse(model.arguments)
        self.label = f"call {model.python}"

    @staticmethod
    def check(model: ActionModel, permissions: Permissions) -> Iterator[Problem]:
        try:
            function = find_function(str(model.python), permissions.folder)
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
        except (Exception, SystemExit) as error:
            # `SystemExit` must not end this program, either. The error may contain secrets, so the caller gets only an
            # id. The log has the full error under that id.
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
