"""The engine: runs task bodies, which survive crashes, can be cancelled, and wait without holding a worker slot."""

from raincheck.engine.engine import Engine
from raincheck.engine.execution.context import Child, SyncChild, SyncTaskContext, SyncVariables, TaskContext, Variables
from raincheck.engine.inputs import Reply
from raincheck.engine.process_signals import run_until_signal
from raincheck.engine.settings import Settings
from raincheck.engine.toolbox import Toolbox

__all__ = [
    "Child",
    "Engine",
    "Reply",
    "Settings",
    "SyncChild",
    "SyncTaskContext",
    "SyncVariables",
    "TaskContext",
    "Toolbox",
    "Variables",
    "run_until_signal",
]
