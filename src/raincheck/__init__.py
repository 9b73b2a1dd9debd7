"""raincheck: durable, long-running MCP tasks. A slip now, the result later."""

from importlib import import_module
from typing import TYPE_CHECKING

from raincheck.core.limits import Limits, Quota
from raincheck.core.owner import Owner
from raincheck.core.policies import OnInterrupt, Retention, RetryPolicy
from raincheck.errors import ProtocolError, RaincheckError, TaskFailed, TaskNotFound, ToolError
from raincheck.wire.fallback_tools import PlainTools

if TYPE_CHECKING:
    from raincheck.engine import Engine, Reply, Settings, SyncTaskContext, TaskContext, Toolbox, run_until_signal
    from raincheck.server import Tasks
    from raincheck.stores.factory import open_store

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


# Imported when they are first asked for. The SDK takes most of a second: workers and processes of tools do without it.
# The engine takes less, and who only calls the tasks of others does without that, too.
_WHERE = {
    **dict.fromkeys(
        ("Engine", "Reply", "Settings", "SyncTaskContext", "TaskContext", "Toolbox", "run_until_signal"),
        "raincheck.engine",
    ),
    "open_store": "raincheck.stores.factory",
    "Tasks": "raincheck.server",
}


if not TYPE_CHECKING:
    # Who checks types is told of a name that there is not.
    def __getattr__(name: str) -> object:
        if name not in _WHERE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_WHERE[name]), name)
        return found


def __dir__() -> list[str]:
    return [*__all__]
