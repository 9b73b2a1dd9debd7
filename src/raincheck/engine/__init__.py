"""The engine: runs task bodies, which survive crashes, can be cancelled, and wait without holding a worker slot.

Internal: what users need of it is exported by `raincheck`.
"""

from raincheck.engine.engine import Engine
from raincheck.engine.execution.context import Child, TaskContext, Variables
from raincheck.engine.execution.sync_context import SyncChild, SyncTaskContext, SyncVariables
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
