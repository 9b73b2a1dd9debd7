"""The log of side effects: a line for everything that a body does, appended in one write."""

import os
import select
import time
from pathlib import Path

DIARY = "CHAOS_DIARY"
"""The variable that names the file."""


def write_line(subject: str, attempt: int, event: str, detail: str = "") -> None:
    """Append a line: the time since boot (which no fault changes), the process, the task or key, and what happened."""
    line = "\t".join((f"{time.monotonic():.6f}", str(os.getpid()), subject, str(attempt), event, detail))
    descriptor = os.open(Path(os.environ[DIARY]), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


def pause(seconds: float) -> None:
    """Sleep in a thread. `time.sleep` fails (EINVAL) when libfaketime has set the clock back."""
    select.select((), (), (), seconds)


def write_surely(subject: str, attempt: int, event: str, detail: str = "") -> None:
    """Like `write_line`, in a thread that waits while the disk is full."""
    for _ in range(1_000):
        try:
            return write_line(subject, attempt, event, detail)
        except OSError:
            pause(0.05)
    return write_line(subject, attempt, event, detail)
