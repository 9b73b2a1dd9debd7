"""What went wrong in a module of somebody else's, and in which line of it. A traceback would mostly tell of us."""

import sysconfig
import traceback
from pathlib import Path

import raincheck
from raincheck.cli.loaded_only import RunsServer
from raincheck.wire.spoken import clipped

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
