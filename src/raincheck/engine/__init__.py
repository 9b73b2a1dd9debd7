"""The engine: runs the bodies of tasks, so that they survive crashes, stop when told, and wait for free."""

from raincheck.engine.engine import Engine
from raincheck.engine.execution.context import Child, SyncChild, SyncTaskContext, SyncVariables, TaskContext, Variables
from raincheck.engine.inputs import Reply
from raincheck.engine.settings import Settings
from raincheck.engine.signals import run_until_signal
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
