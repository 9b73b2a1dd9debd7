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
"""The attribute of a body that a factory made from a function. It has the factory ("module:name") and its options."""

# The program that is being loaded. If loading it started the program again, there would be processes without end.
_loading: list[str] = []


@dataclass(frozen=True, slots=True)
class FunctionRef:
    """The location of a tool's body, and how to call it."""

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
    factory: str | None = None
    """The factory that makes the body from the referenced function; None if the function is the body."""
    factory_options: Mapping[str, Any] = field(default_factory=dict[str, Any])

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
            f"the body of tool {tool.name!r} was defined interactively, so another process can't find it: "
            f"put it into a file"
        )
    factory, factory_options = getattr(body, FACTORY_ATTRIBUTE, (None, dict[str, Any]()))
    return FunctionRef(
        tool=tool.name,
        module=module,
        script=script,
        qualname=body.__qualname__,
        is_main=is_main,
        is_async=tool.is_async,
        context=tool.context_parameter,
        factory=factory,
        factory_options=factory_options,
    )


def load_function(ref: FunctionRef) -> Callable[..., Any]:
    """Load the body in this process. This runs its module, except for code under `if __name__ == "__main__":`.

    Raises:
        ConfigurationError: it was not found. The message says what was searched for, and where.
    """
    target: object = _load(ref)
    where = f"{ref.module or 'the program'} ({getattr(target, '__file__', None) or 'which has no file'})"
    for name in ref.qualname.split("."):
        target = getattr(target, name, None)
    if isinstance(target, TaskTool):
        target = target.body
    if not callable(target):
        raise ConfigurationError(
            f"there is no function {ref.qualname!r} in {where} when another process loads it: "
            f'define it at the top level, and not under `if __name__ == "__main__":`'
        )
    if ref.factory is None:
        return target
    module, _, maker = ref.factory.partition(":")
    return getattr(importlib.import_module(module), maker)(target, ref.tool, **ref.factory_options)


def forbid_while_loading(subject: str) -> None:
    """Reject actions that a program must not take while it is loaded in the process of one of its tools.

    Raises:
        ConfigurationError: the program is being loaded there.
    """
    if _loading:
        raise ConfigurationError(
            f"{subject} can't be started while {_loading[0]} is loaded in the process of one of its tools: put the "
            f'code that starts the program under `if __name__ == "__main__":`'
        )


def _load(ref: FunctionRef) -> ModuleType:
    label = str(ref.script) if ref.module is None else f"module {ref.module!r}"
    _loading.append(label)
    try:
        return _run_script(ref.script) if ref.module is None else importlib.import_module(ref.module)
    except Exception as error:
        raise ConfigurationError(
            f"{label}, which should contain {ref.qualname!r}, can't be loaded in another process: "
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
