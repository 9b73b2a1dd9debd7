"""References to functions that another process can load: a module or the program's file, and a qualified name."""

import importlib
import io
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, cast

from raincheck.engine.tool import TaskTool
from raincheck.errors import ConfigurationError

# The name that multiprocessing uses, too: programs guard themselves against running under it, and their bodies can use
# multiprocessing in turn.
_RERUN = "__mp_main__"

FACTORY_ATTRIBUTE = "__raincheck_made_by__"
"""The attribute of a body made by a factory from the function at its place: the factory ("module:name"), its options.
"""

# A program that starts itself when it is loaded would start processes without end.
_loading: list[str] = []


@dataclass(frozen=True, slots=True)
class FunctionRef:
    """The place of a tool's body, and how it is called."""

    tool: str
    module: str | None
    """None if the body is in a program that was started as a file."""
    script: str | None
    qualname: str
    is_main: bool
    """Whether that module or file is the program that the engine runs in."""
    is_async: bool
    context: str | None
    """The parameter that takes the context."""
    made_by: str | None = None
    """The factory that makes the body of the function found there; None if the function is the body."""
    made_with: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def module_of(self, kind: type) -> str:
        """Return the module of a class under the name that the engine's process uses."""
        return "__main__" if self.is_main and kind.__module__ == (self.module or _RERUN) else kind.__module__


def function_ref(tool: TaskTool) -> FunctionRef:
    """Return a reference with which another process finds the body of a tool.

    Raises:
        ConfigurationError: no other process can find it.
    """
    forbid_while_loading(f"a process for tool {tool.name!r}")
    body, main = tool.body, sys.modules["__main__"]
    is_main = body.__module__ == main.__name__
    module = getattr(main.__spec__, "name", None) if is_main else body.__module__
    script = getattr(main, "__file__", None) if is_main else None
    if module is None and script is None:
        raise ConfigurationError(
            f"the body of tool {tool.name!r} was typed in, so another process can't find it: put it into a file"
        )
    made_by, made_with = getattr(body, FACTORY_ATTRIBUTE, (None, dict[str, Any]()))
    return FunctionRef(
        tool=tool.name,
        module=module,
        script=script,
        qualname=body.__qualname__,
        is_main=is_main,
        is_async=tool.is_async,
        context=tool.context_parameter,
        made_by=made_by,
        made_with=made_with,
    )


def load_function(ref: FunctionRef) -> Callable[..., Any]:
    """Load the body in this process. This runs its module, except for what it guards.

    Raises:
        ConfigurationError: it is not there; the message says what was searched for, and where.
    """
    found: object = _load(ref)
    where = f"{ref.module or 'the program'} ({getattr(found, '__file__', None) or 'which has no file'})"
    for name in ref.qualname.split("."):
        found = getattr(found, name, None)
    if isinstance(found, TaskTool):
        found = found.body
    if not callable(found):
        raise ConfigurationError(
            f"there is no function {ref.qualname!r} in {where}, as seen from a process of its own: "
            f'define it at the top level, and not under `if __name__ == "__main__":`'
        )
    if ref.made_by is None:
        return found
    module, _, maker = ref.made_by.partition(":")
    return getattr(importlib.import_module(module), maker)(found, ref.tool, **ref.made_with)


def forbid_while_loading(what: str) -> None:
    """Reject actions that a program must not take while it is loaded in the process of one of its tools.

    Raises:
        ConfigurationError: the program is being loaded there.
    """
    if _loading:
        raise ConfigurationError(
            f"{what} is asked for while {_loading[0]} is loaded in the process of one of its tools: put what starts "
            f'the program under `if __name__ == "__main__":`'
        )


def _load(place: FunctionRef) -> ModuleType:
    what = str(place.script) if place.module is None else f"module {place.module!r}"
    _loading.append(what)
    try:
        return _run_script(place.script) if place.module is None else importlib.import_module(place.module)
    except Exception as error:
        raise ConfigurationError(
            f"{what}, where {place.qualname!r} should be, can't be loaded in a process of its own: "
            f"{type(error).__name__}: {error} (looked in {', '.join(sys.path)})"
        ) from error
    finally:
        _loading.clear()


def _run_script(script: str | None) -> ModuleType:
    path = cast("str", script)
    module = ModuleType(_RERUN)
    module.__file__ = path
    sys.modules["__main__"] = sys.modules[_RERUN] = module
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec")
    exec(code, module.__dict__)  # noqa: S102 - the program that contains the body
    return module
