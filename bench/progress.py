"""Show progress on stderr: one changing line on a terminal, otherwise a line for each stage."""

import sys
from time import monotonic

_CLEAR_LINE = "\r\x1b[K"


class Progress:
    """Shows which stage is running, and its progress."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._started = monotonic()
        self._stage = ""

    def stage(self, text: str) -> None:
        """Start a stage."""
        self._stage = text
        if self._is_terminal:
            self._show(text)
        else:
            self._write(f"bench: {self._elapsed()} {text}\n")

    def tick(self, done: int, total: int) -> None:
        """Show the progress of the stage, on a terminal only."""
        if self._is_terminal:
            self._show(f"{self._stage} {100 * done // total} %")

    def end(self) -> None:
        if self._is_terminal:
            self._write(_CLEAR_LINE)

    def _show(self, text: str) -> None:
        self._write(f"{_CLEAR_LINE}{self._elapsed()} {text}")

    def _elapsed(self) -> str:
        return f"[{monotonic() - self._started:4.0f} s]"

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
