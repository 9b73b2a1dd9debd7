"""Load the tasks of a target: a Python file or module, or a file of workflows.

The module is imported. A module that runs its server on import would block the command, so this is prevented and
reported. Errors of a module name the line of the user's code, since most of a traceback would show raincheck's own
code.
"""

import importlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Coroutine, Generator
from contextlib import ExitStack, contextmanager, redirect_stdout
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, cast

import anyio
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer

import raincheck
from raincheck.cli.exit_codes import echo_err
from raincheck.errors import ConfigurationError
from raincheck.server import Tasks
from raincheck.server.sdk_compat import AnyServer
from raincheck.wire.fallback_text import clip_text
from raincheck.workflows.definition import is_workflow_path
from raincheck.workflows.serve import WorkflowTasks

RUNS = ("run", "run_stdio_async", "run_sse_async", "run_streamable_http_async")


class RunOnImportError(Exception):
    """A module runs its server on import."""


@contextmanager
def prevent_server_run(is_server: Callable[[object], bool]) -> Generator[None]:
    """Raise an error if a server is run inside the context.

    This covers every run method of `MCPServer`. Servers that are built on the SDK, such as those of FastMCP, may not be
    imported yet: they are recognized by the function that they pass to the event loop.
    """
    run = anyio.run

    def run_unless_server(work: Callable[..., Any], *rest: Any, **options: Any) -> Any:  # noqa: ANN401 - as in anyio
        function = work
        while isinstance(function, partial):
            function = function.func
        if is_server(getattr(function, "__self__", None)):
            _raise_run_on_import()
        return run(work, *rest, **options)

    with ExitStack() as restore:
        for owner, name, replacement in [
            *((MCPServer, name, _raise_run_on_import) for name in RUNS),
            (anyio, "run", run_unless_server),
        ]:
            restore.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, replacement)
        yield


def _raise_run_on_import(*_: object, **_options: object) -> NoReturn:
    raise RunOnImportError


PACKAGE = Path(raincheck.__file__).parent
INSTALL_FOLDERS = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]

MAIN_GUARD_HINT = 'under `if __name__ == "__main__":`'


def describe_load_error(name: str, error: BaseException) -> str:
    """Describe why a module can't be loaded: the error, and where it was raised."""
    location = _error_location(error)
    return f"{name} can't be loaded: {_describe_error(error)}{'' if location is None else f' (in {location})'}"


def _describe_error(error: BaseException) -> str:
    if isinstance(error, RunOnImportError):
        return f"it runs its server on import, as with mcp.run(): put that {MAIN_GUARD_HINT}"
    if isinstance(error, SystemExit):
        return f"it exits on import, with {error.code!r}: put that {MAIN_GUARD_HINT}"
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {clip_text(error.msg)}"
    # This also formats exceptions whose own `__str__` fails.
    return clip_text(traceback.format_exception_only(error)[0])


def _error_location(error: BaseException) -> str | None:
    """Return the file and line of the last frame that is neither raincheck's nor an installed package's."""
    if isinstance(error, SyntaxError) and error.filename is not None and Path(error.filename).is_file():
        return _format_location(error.filename, error.lineno)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_file()]
    foreign = [frame for frame in frames if not Path(frame.filename).is_relative_to(PACKAGE)]
    user_code = [frame for frame in foreign if not any(map(Path(frame.filename).is_relative_to, INSTALL_FOLDERS))]
    last = next(reversed(user_code or foreign), None)
    return None if last is None else _format_location(last.filename, last.lineno)


def _format_location(filename: str, line: int | None) -> str:
    """Format a file and line in the form that editors accept."""
    path = Path(filename)
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return str(path) if line is None else f"{path}, line {line}"


STDOUT, STDERR = 1, 2


def load_tasks(target: str) -> Tasks:
    """Load the tasks of a target: `file.py` or `package.module`, optionally with `:object`; or workflows.

    The current folder is added to the module path, as with `python -m`; so is the folder of a file, as with `python`.

    Raises:
        ConfigurationError: there are no tasks, or the target is ambiguous. The error suggests what to write.
    """
    if is_workflow_path(target):
        return WorkflowTasks(Path(target))
    where, name = split_target(target)
    module = load_module(where)
    return _find_only(where, module) if name is None else _named(where, module, name)


def split_target(target: str) -> tuple[str, str | None]:
    """Split a target into its file or module, and the object in it if it names one.

    Raises:
        ConfigurationError: there is nothing before or after its colon.
    """
    where, colon, name = target.rpartition(":")
    # The colon of a Windows drive is followed by a path.
    if not colon or not {"/", "\\"}.isdisjoint(name):
        where, name = target, None
    if not where.strip() or name == "":
        raise ConfigurationError(
            f"{target!r} names nothing to load: write file.py, file.py:object, package.module or package.module:object"
        )
    return where, name


def load_module(name_or_path: str) -> ModuleType:
    """Load the module with this name, or from this file.

    Raises:
        ConfigurationError: it does not exist, or can't be loaded. The error names the line that failed.
    """
    _prepend_to_sys_path(Path.cwd())
    path = Path(name_or_path)
    is_name = (
        all(part.isidentifier() for part in name_or_path.split(".")) and path.suffix != ".py" and not path.is_file()
    )
    with _replaced_argv(name_or_path), prevent_server_run(_is_server):
        module = _load_by_name(name_or_path) if is_name else _load_file(path)
    if getattr(module, "__file__", None) is None and hasattr(module, "__path__"):
        raise _folder_error(name_or_path)
    return module


@contextmanager
def redirect_stdout_to_stderr() -> Generator[None]:
    """Redirect stdout to stderr, also for child processes: stdout is reserved for the command's own output."""
    sys.stdout.flush()
    saved = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(saved, STDOUT)
        os.close(saved)


def _load_by_name(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ConfigurationError(describe_load_error(name, error)) from error
        raise ConfigurationError(
            f"there is no module {error.name!r} in {Path.cwd()} or on Python's module path: "
            f"write the path of its file, or change to its folder"
        ) from error
    except (Exception, SystemExit) as error:
        raise ConfigurationError(describe_load_error(name, error)) from error


def _load_file(path: Path) -> ModuleType:
    if path.is_dir():
        raise _folder_error(str(path))
    if not path.exists():
        raise ConfigurationError(f"there is no file {path} (in {Path.cwd()}): check the path")
    if path.suffix != ".py":
        raise ConfigurationError(f"{path} is not a Python file: name a file that ends in .py")
    path = path.resolve()
    _prepend_to_sys_path(path.parent)
    name = path.stem
    while name in sys.modules:
        # Another module has this name, such as `json`. Code that imports that module must not get this one.
        name += "_"
    spec = spec_from_file_location(name, path)
    assert spec is not None  # noqa: S101 - the path ends in .py
    assert spec.loader is not None  # noqa: S101 - likewise
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ConfigurationError(describe_load_error(path.name, error)) from error
    return module


@contextmanager
def _replaced_argv(where: str) -> Generator[None]:
    """Hide the command's own arguments from the module, which may read those of its program."""
    original, sys.argv = sys.argv, [where]
    try:
        yield
    finally:
        sys.argv = original


def _prepend_to_sys_path(folder: Path) -> None:
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
    sys.path.insert(0, str(folder))


def _folder_error(where: str) -> ConfigurationError:
    example = Path(where) / "server.py"
    return ConfigurationError(f"{where} is a folder without workflows (*.yaml): name a file in it, such as {example}")


def _named(where: str, module: ModuleType, name: str) -> Tasks:
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigurationError(f"{where} has no {name!r}: {_suggest_targets(where, module)}")
        found = getattr(found, part)
    tasks = _tasks_of(found)
    if tasks is None:
        kind = "a server without tasks" if _is_server(found) else f"of type {type(found).__name__}"
        raise ConfigurationError(
            f"{name!r} in {where} is {kind}, not a Tasks object or a server with tasks: "
            f"{_suggest_targets(where, module)}"
        )
    return tasks


def _find_only(where: str, module: ModuleType) -> Tasks:
    found = {id(tasks): tasks for tasks in _all_tasks(module).values()}
    if len(found) != 1:
        problem = "has the tasks of several servers" if found else "has no tasks"
        raise ConfigurationError(f"{where} {problem}: {_suggest_targets(where, module)}")
    return next(iter(found.values()))


def _suggest_targets(where: str, module: ModuleType) -> str:
    """Suggest a target to write instead."""
    # A server and its tasks are the same object.
    names = {id(tasks): name for name, tasks in _all_tasks(module).items()}
    if names:
        return f"write {' or '.join(f'{where}:{name}' for name in names.values())}"
    server = next((name for name, value in vars(module).items() if _is_server(value)), "mcp")
    return f"attach tasks to a server at its top level, as in tasks = Tasks({server})"


def _all_tasks(module: ModuleType) -> dict[str, Tasks]:
    """Return the tasks in a module, by the names of its globals."""
    found = {name: _tasks_of(value) for name, value in vars(module).items()}
    return {name: tasks for name, tasks in found.items() if tasks is not None}


def _tasks_of(value: object) -> Tasks | None:
    if isinstance(value, Tasks):
        return value
    server = _server_of(value)
    return None if server is None else Tasks.of(server)


def _is_server(value: object) -> bool:
    return _server_of(value) is not None


def _server_of(value: object) -> AnyServer | None:
    """Return the SDK's server that the value is, or is built on: servers of FastMCP are built on one."""
    if isinstance(value, MCPServer | Server):
        return cast("AnyServer", value)
    inner = vars(value).get("_mcp_server") if hasattr(value, "__dict__") else None
    return cast("AnyServer", inner) if isinstance(inner, Server) else None


async def run_with_reload(tasks: Tasks, work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine with tasks. Tasks of workflows are reloaded when their file changes."""
    await (tasks.run_with_reload(work, echo_err) if isinstance(tasks, WorkflowTasks) else work)
