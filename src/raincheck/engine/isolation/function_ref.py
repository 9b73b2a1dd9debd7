"""Finding a body again in another process: by the name of its module or the file of the program, and its own name."""

import importlib
import io
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, cast

from raincheck.engine.tool import TaskTool
from raincheck.errors import ConfigurationError

# The name that multiprocessing gives it too: programs guard themselves against running under it, and a body of theirs
# can use multiprocessing in turn.
_RERUN = "__mp_main__"

MADE_BY = "__raincheck_made_by__"
"""The attribute of a body that was made of the function at its place: what made it ("module:name"), and its options."""

# A program that starts itself when it is loaded would start processes from processes without end.
_loading: list[str] = []


@dataclass(frozen=True, slots=True)
class BodyPlace:
    """Where the body of a tool is, and how it is called."""

    tool: str
    module: str | None
    """None if it is in a program that was started as a file."""
    script: str | None
    qualname: str
    is_main: bool
    """Whether that module or file is the program that the engine runs in."""
    is_async: bool
    context: str | None
    """The parameter that takes the context."""
    made_by: str | None = None
    """What makes the body of the function that is found there; None if that is the body."""
    made_with: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def module_of(self, kind: type) -> str:
        """The module of a class as it is known to the engine's process."""
        return "__main__" if self.is_main and kind.__module__ == (self.module or _RERUN) else kind.__module__


def place_of(tool: TaskTool) -> BodyPlace:
    """Where another process finds the body of a tool.

    Raises:
        ConfigurationError: nowhere.
    """
    refuse_while_loading(f"a process for tool {tool.name!r}")
    body, main = tool.body, sys.modules["__main__"]
    is_main = body.__module__ == main.__name__
    module = getattr(main.__spec__, "name", None) if is_main else body.__module__
    script = getattr(main, "__file__", None) if is_main else None
    if module is None and script is None:
        raise ConfigurationError(
            f"the body of tool {tool.name!r} was typed in, so another process can't find it: put it into a file"
        )
    made_by, made_with = getattr(body, MADE_BY, (None, dict[str, Any]()))
    return BodyPlace(
        tool=tool.name,
        module=module,
        script=script,
        qualname=body.__qualname__,
        is_main=is_main,
        is_async=tool.is_async,
        context=tool.context_name,
        made_by=made_by,
        made_with=made_with,
    )


def find_body(place: BodyPlace) -> Callable[..., Any]:
    """The body at this place, in this process. The module is run for that, down to what it guards.

    Raises:
        ConfigurationError: it is not there; the message says what was looked for, and where.
    """
    found: object = _load(place)
    where = f"{place.module or 'the program'} ({getattr(found, '__file__', None) or 'which has no file'})"
    for name in place.qualname.split("."):
        found = getattr(found, name, None)
    if isinstance(found, TaskTool):
        found = found.body
    if not callable(found):
        raise ConfigurationError(
            f"there is no function {place.qualname!r} in {where}, as seen from a process of its own: "
            f'define it at the top level, and not under `if __name__ == "__main__":`'
        )
    if place.made_by is None:
        return found
    module, _, maker = place.made_by.partition(":")
    return getattr(importlib.import_module(module), maker)(found, place.tool, **place.made_with)


def refuse_while_loading(what: str) -> None:
    """Refuse what a program should not do while it is loaded in the process of one of its tools.

    Raises:
        ConfigurationError: it is being loaded there.
    """
    if _loading:
        raise ConfigurationError(
            f"{what} is asked for while {_loading[0]} is loaded in the process of one of its tools: put what starts "
            f'the program under `if __name__ == "__main__":`'
        )


def _load(place: BodyPlace) -> ModuleType:
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
    exec(code, module.__dict__)  # noqa: S102 - the program that the body is in
    return module
