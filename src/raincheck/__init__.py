"""raincheck: durable, long-running MCP tasks. A slip now, the result later."""

from typing import TYPE_CHECKING, Any

from raincheck.core.limits import Limits, Quota
from raincheck.core.owner import Owner
from raincheck.core.retention import Retention
from raincheck.core.retry import OnInterrupt, RetryPolicy
from raincheck.engine import Engine, Reply, Settings, SyncTaskContext, TaskContext, Toolbox, run_until_signal
from raincheck.errors import ProtocolError, RaincheckError, TaskFailed, TaskNotFound, ToolError
from raincheck.opening import open_store
from raincheck.wire.plain_tools import PlainTools

if TYPE_CHECKING:
    from raincheck.server import Tasks

__all__ = [
    "Engine",
    "Limits",
    "OnInterrupt",
    "Owner",
    "PlainTools",
    "ProtocolError",
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
    "Tasks",
    "ToolError",
    "Toolbox",
    "open_store",
    "run_until_signal",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - what the module has under that name
    # The SDK takes most of a second to import. Workers and processes of tools that don't serve do without it.
    if name == "Tasks":
        from raincheck.server import Tasks

        return Tasks
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
