"""Functions that run in a process of their own, which imports them by name."""

import os

from raincheck import SyncTaskContext


def add_apart(a: int, b: int, task: SyncTaskContext) -> dict[str, int]:
    task.progress(1, 1, "adding")
    return {"sum": a + b, "process": os.getpid()}
