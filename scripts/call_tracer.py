"""Record the calls of our functions: `python -m scripts.call_tracer FILE ARGUMENT ...` traces the program `raincheck`.

This module imports only the root package, so that functions that run while a command is imported count.
"""

import asyncio
import json
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import raincheck

SOURCE = f"{Path(raincheck.__file__).parent}/"
INLINE = ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<lambda>")
IS_FUNCTION = 1
"""The flag of code that belongs to a function, and not to a module or a class."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a function of ours."""

    module: str
    function: str
    task: int = field(default=0, compare=False)
    """Identifies the background task that called it."""


class Tracer:
    """Records the calls of our functions, in all threads, while it is on."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.is_on = False
        self._frames = set[FrameType]()
        threading.setprofile(self._record)
        sys.setprofile(self._record)

    def _record(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if not self.is_on or event != "call" or not code.co_filename.startswith(SOURCE):
            return
        # A coroutine that resumes is no new call. Its frame is kept, so that no other has its identity.
        if frame in self._frames or not code.co_flags & IS_FUNCTION or code.co_qualname.endswith(INLINE):
            return
        self._frames.add(frame)
        module = code.co_filename.removeprefix(SOURCE).removesuffix(".py")
        self.calls.append(Call(module, code.co_qualname, _current_task()))


def _current_task() -> int:
    try:
        return id(asyncio.current_task())
    except RuntimeError:
        return 0


def save(calls: Iterable[Call], file: Path) -> None:
    file.write_text(json.dumps([(call.module, call.function, call.task) for call in calls]), encoding="utf-8")


def main(file: str, *arguments: str) -> None:
    tracer = Tracer()
    tracer.is_on = True
    from raincheck.cli import main as program

    sys.argv = ["raincheck", *arguments]
    with suppress(SystemExit):
        program()
    tracer.is_on = False
    save(tracer.calls, Path(file))


if __name__ == "__main__":
    main(*sys.argv[1:])
