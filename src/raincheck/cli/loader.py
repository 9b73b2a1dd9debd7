"""Finding the tasks that somebody means: in a file or a module of theirs, which is loaded for that.

What went wrong in a module of somebody else's, and in which line of it. A traceback would mostly tell of us.

Keeping a module from running its server while it is loaded: it would be waited for in vain.
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
from raincheck.cli.exit_codes import tell
from raincheck.errors import ConfigurationError
from raincheck.server import Tasks
from raincheck.server.sdk_compat import AnyServer
from raincheck.wire.fallback_text import clipped
from raincheck.workflows.files import is_workflows
from raincheck.workflows.serve import WorkflowTasks

RUNS = ("run", "run_stdio_async", "run_sse_async", "run_streamable_http_async")


class RunsServer(Exception):
    """A module runs its server as soon as it is loaded."""


@contextmanager
def loaded_only(is_server: Callable[[object], bool]) -> Generator[None]:
    """Meanwhile, whoever runs a server is told that this is not the moment.

    That is all there is of `MCPServer`. Servers that are built on the SDK, such as those of FastMCP, may not even be
    imported yet: they are known by what they have an event loop run.
    """
    run = anyio.run

    def run_others(work: Callable[..., Any], *rest: Any, **options: Any) -> Any:  # noqa: ANN401 - as in anyio
        if is_server(_whose(work)):
            _refuse()
        return run(work, *rest, **options)

    with ExitStack() as put_back:
        for owner, name, instead in [*((MCPServer, name, _refuse) for name in RUNS), (anyio, "run", run_others)]:
            put_back.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, instead)
        yield


def _refuse(*_: object, **_options: object) -> NoReturn:
    raise RunsServer


def _whose(work: Callable[..., Any]) -> object:
    while isinstance(work, partial):
        work = work.func
    return getattr(work, "__self__", None)


OURS = Path(raincheck.__file__).parent
INSTALLED = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]

GUARDED = 'under `if __name__ == "__main__":`'


def blame(what: str, error: BaseException) -> str:
    """Says that something can't be loaded: with what error, and where that came from."""
    place = _place(error)
    return f"{what} can't be loaded: {_words(error)}{'' if place is None else f' (in {place})'}"


def _words(error: BaseException) -> str:
    if isinstance(error, RunsServer):
        return f"it runs its server as soon as it is loaded, as in mcp.run(): put that {GUARDED}"
    if isinstance(error, SystemExit):
        return f"it ends the program, with {error.code!r}: put what starts it {GUARDED}"
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {clipped(error.msg)}"
    # It tells of an error that can't tell of itself, too.
    return clipped(traceback.format_exception_only(error)[0])


def _place(error: BaseException) -> str | None:
    """The file and line that the author has to look at: the last that is neither ours nor installed."""
    if isinstance(error, SyntaxError) and error.filename is not None and Path(error.filename).is_file():
        return _shown(error.filename, error.lineno)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_file()]
    others = [frame for frame in frames if not Path(frame.filename).is_relative_to(OURS)]
    theirs = [frame for frame in others if not any(map(Path(frame.filename).is_relative_to, INSTALLED))]
    last = next(reversed(theirs or others), None)
    return None if last is None else _shown(last.filename, last.lineno)


def _shown(filename: str, line: int | None) -> str:
    """A place as an editor takes it."""
    path = Path(filename)
    if path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return str(path) if line is None else f"{path}, line {line}"


STDOUT, STDERR = 1, 2


def load_tasks(target: str) -> Tasks:
    """The tasks that a target means: `file.py` or `package.module`, and after a colon the object in it; or workflows.

    The current folder is on the path from then on, as with `python -m`; and the folder of a file, as with `python`.

    Raises:
        ConfigurationError: there are none, or it is not clear which; it says what to write.
    """
    if is_workflows(target):
        return WorkflowTasks(Path(target))
    where, name = split_target(target)
    module = load_module(where)
    return _the_one(where, module) if name is None else _named(where, module, name)


def split_target(target: str) -> tuple[str, str | None]:
    """The file or module of a target, and the object in it if it names one.

    Raises:
        ConfigurationError: it names nothing before or behind its colon.
    """
    where, colon, name = target.rpartition(":")
    # The colon of a drive has a path behind it.
    if not colon or not {"/", "\\"}.isdisjoint(name):
        where, name = target, None
    if not where.strip() or name == "":
        raise ConfigurationError(
            f"{target!r} does not say what to load: write file.py, file.py:object, package.module or "
            f"package.module:object"
        )
    return where, name


def load_module(where: str) -> ModuleType:
    """The module of this name, or in this file.

    Raises:
        ConfigurationError: it is not there, or can't be loaded; it says where that went wrong.
    """
    _be_found_in(Path.cwd())
    path = Path(where)
    is_name = all(part.isidentifier() for part in where.split(".")) and path.suffix != ".py" and not path.is_file()
    with _as_program(where), loaded_only(_is_server):
        module = _load_by_name(where) if is_name else _load_file(path)
    if getattr(module, "__file__", None) is None and hasattr(module, "__path__"):
        raise _is_folder(where)
    return module


@contextmanager
def stdout_aside() -> Generator[None]:
    """Whatever is printed meanwhile goes to stderr, also by other programs: stdout is for what the command says."""
    sys.stdout.flush()
    kept = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, STDOUT)
        os.close(kept)


def _load_by_name(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ConfigurationError(blame(name, error)) from error
        raise ConfigurationError(
            f"there is no module {error.name!r} in {Path.cwd()} or where Python looks for modules: "
            f"write the path of its file, or go to the folder that it is in"
        ) from error
    except (Exception, SystemExit) as error:
        raise ConfigurationError(blame(name, error)) from error


def _load_file(path: Path) -> ModuleType:
    if path.is_dir():
        raise _is_folder(str(path))
    if not path.exists():
        raise ConfigurationError(f"there is no file {path} (looked for it from {Path.cwd()}): write where it is")
    if path.suffix != ".py":
        raise ConfigurationError(f"{path} is not a file of Python, which ends in .py: write where that is")
    path = path.resolve()
    _be_found_in(path.parent)
    name = path.stem
    while name in sys.modules:
        # Somebody else's, such as `json`: whoever uses that is not to get this one.
        name += "_"
    spec = spec_from_file_location(name, path)
    assert spec is not None  # noqa: S101 - of a file that ends in .py
    assert spec.loader is not None  # noqa: S101 - likewise
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ConfigurationError(blame(path.name, error)) from error
    return module


@contextmanager
def _as_program(where: str) -> Generator[None]:
    """What was said to us is not for the module, which may look at what was said to its program."""
    ours, sys.argv = sys.argv, [where]
    try:
        yield
    finally:
        sys.argv = ours


def _be_found_in(folder: Path) -> None:
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
    sys.path.insert(0, str(folder))


def _is_folder(where: str) -> ConfigurationError:
    none = "a folder, and there are no workflows (*.yaml) in it"
    return ConfigurationError(f"{where} is {none}: write which file of it, such as {Path(where) / 'server.py'}")


def _named(where: str, module: ModuleType, name: str) -> Tasks:
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigurationError(f"{where} has no {name!r}: {_what_there_is(where, module)}")
        found = getattr(found, part)
    tasks = _tasks_of(found)
    if tasks is None:
        kind = "a server without tasks" if _is_server(found) else f"of type {type(found).__name__}"
        raise ConfigurationError(
            f"{name!r} in {where} is {kind}, and not a Tasks or a server with tasks: {_what_there_is(where, module)}"
        )
    return tasks


def _the_one(where: str, module: ModuleType) -> Tasks:
    found = {id(tasks): tasks for tasks in _all_tasks(module).values()}
    if len(found) != 1:
        wrong = "has the tasks of several servers" if found else "has no tasks"
        raise ConfigurationError(f"{where} {wrong}: {_what_there_is(where, module)}")
    return next(iter(found.values()))


def _what_there_is(where: str, module: ModuleType) -> str:
    """What to write instead."""
    # A server and its tasks are one.
    one_each = {id(tasks): name for name, tasks in _all_tasks(module).items()}
    if one_each:
        return f"write {' or '.join(f'{where}:{name}' for name in one_each.values())}"
    server = next((name for name, value in vars(module).items() if _is_server(value)), "mcp")
    return f"attach tasks to a server at its top level, as in tasks = Tasks({server})"


def _all_tasks(module: ModuleType) -> dict[str, Tasks]:
    """The tasks in a module, by the names of its globals."""
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
    """The server that something is, or is built on: those of FastMCP are."""
    if isinstance(value, MCPServer | Server):
        return cast("AnyServer", value)
    inner = vars(value).get("_mcp_server") if hasattr(value, "__dict__") else None
    return cast("AnyServer", inner) if isinstance(inner, Server) else None


async def kept_fresh(tasks: Tasks, work: Coroutine[Any, Any, None]) -> None:
    """Do something with tasks. If they are of workflows, what changes in their file is taken in meanwhile."""
    await (tasks.kept_fresh(work, tell) if isinstance(tasks, WorkflowTasks) else work)
