"""raincheck: durable, long-running MCP tasks. A slip now, the result later."""

from raincheck.core.limits import Limits, Quota
from raincheck.core.owner import Owner
from raincheck.core.retention import Retention
from raincheck.core.retry import OnInterrupt, RetryPolicy
from raincheck.engine import Engine, Reply, Settings, SyncTaskContext, TaskContext, Toolbox, run_until_signal
from raincheck.errors import RaincheckError, TaskFailed, TaskNotFound, ToolError
from raincheck.opening import open_store

__all__ = [
    "Engine",
    "Limits",
    "OnInterrupt",
    "Owner",
    "Quota",
    "RaincheckError",
    "Reply",
    "Retention",
    "RetryPolicy",
    "Settings",
    "SyncTaskContext",
    "TaskContext",
    "TaskFailed",
    "TaskNotFound",
    "ToolError",
    "Toolbox",
    "open_store",
    "run_until_signal",
]
