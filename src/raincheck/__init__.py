"""raincheck: durable, long-running MCP tasks. A slip now, the result later."""

from raincheck.core.owner import Owner
from raincheck.core.retention import Retention
from raincheck.core.retry import OnInterrupt, RetryPolicy
from raincheck.engine import Engine, Settings, SyncTaskContext, TaskContext, Toolbox, run_until_signal
from raincheck.errors import RaincheckError, ToolError
from raincheck.opening import open_store

__all__ = [
    "Engine",
    "OnInterrupt",
    "Owner",
    "RaincheckError",
    "Retention",
    "RetryPolicy",
    "Settings",
    "SyncTaskContext",
    "TaskContext",
    "ToolError",
    "Toolbox",
    "open_store",
    "run_until_signal",
]
