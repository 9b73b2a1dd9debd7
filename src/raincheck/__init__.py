"""raincheck: durable, long-running MCP tasks. The call returns a task id at once, and the result later."""

from importlib import import_module
from typing import TYPE_CHECKING

from raincheck.core.limits import Limits, Quota
from raincheck.core.owner import Owner
from raincheck.core.policies import OnInterrupt, Retention, RetryPolicy
from raincheck.errors import ProtocolError, RaincheckError, TaskFailed, TaskNotFound, ToolError
from raincheck.wire.fallback_tools import FallbackTools

if TYPE_CHECKING:
    from raincheck.engine import Engine, Reply, Settings, SyncTaskContext, TaskContext, Toolbox, run_until_signal
    from raincheck.server import Tasks
    from raincheck.stores.factory import open_store

__all__ = [
    "Engine",
    "FallbackTools",
    "Limits",
    "OnInterrupt",
    "Owner",
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


# Imported on first use. The SDK takes most of a second to import; workers and processes of tools do without it. The
# engine takes less; a process that only calls tasks on other servers does without that, too.
_LAZY_IMPORTS = {
    **dict.fromkeys(
        ("Engine", "Reply", "Settings", "SyncTaskContext", "TaskContext", "Toolbox", "run_until_signal"),
        "raincheck.engine",
    ),
    "open_store": "raincheck.stores.factory",
    "Tasks": "raincheck.server",
}


if not TYPE_CHECKING:
    # Hidden from type checkers, so that they report names that do not exist.
    def __getattr__(name: str) -> object:
        if name not in _LAZY_IMPORTS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_LAZY_IMPORTS[name]), name)
        return found


def __dir__() -> list[str]:
    return [*__all__]
