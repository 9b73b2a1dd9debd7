"""raincheck: durable, long-running MCP tasks. The call returns a task id at once, and the result later.

Public are the names in `__all__` of this package and of `raincheck.client`, `raincheck.workflows`, `raincheck.fastmcp`,
`raincheck.stores`, `raincheck.testing` and `raincheck.conformance`. Everything else is internal.
"""

from typing import TYPE_CHECKING

from raincheck._lazy import lazy_exports

if TYPE_CHECKING:
    from raincheck.core.owner import Owner, OwnerKind
    from raincheck.core.policies import Limits, OnInterrupt, Quota, Retention, RetryPolicy
    from raincheck.core.values import Json
    from raincheck.engine import (
        Child,
        Engine,
        Reply,
        Settings,
        SyncChild,
        SyncTaskContext,
        SyncVariables,
        TaskContext,
        Toolbox,
        Variables,
        run_until_signal,
    )
    from raincheck.engine.tool import TaskTool
    from raincheck.errors import (
        AlreadyRecorded,
        CancelRefused,
        CheckpointMismatch,
        ConfigurationError,
        IdempotencyConflict,
        IllegalTransition,
        InvalidValue,
        LeaseLost,
        NotAStore,
        NotJson,
        PayloadSealed,
        ProtocolError,
        QuotaExceeded,
        RaincheckError,
        SchemaMismatch,
        StaleChange,
        StoreCorrupt,
        StoreError,
        StoreFull,
        StoreReadOnly,
        StoreUnavailable,
        TaskError,
        TaskFailed,
        TaskNotFound,
        TooLarge,
        ToolError,
        TransitionRefused,
        UnknownTool,
        WrongState,
    )
    from raincheck.server import Tasks
    from raincheck.server.tools.policy import TaskPolicy
    from raincheck.stores.factory import open_store
    from raincheck.wire.fallback_text import FallbackTools

__all__ = [
    "AlreadyRecorded",
    "CancelRefused",
    "CheckpointMismatch",
    "Child",
    "ConfigurationError",
    "Engine",
    "FallbackTools",
    "IdempotencyConflict",
    "IllegalTransition",
    "InvalidValue",
    "Json",
    "LeaseLost",
    "Limits",
    "NotAStore",
    "NotJson",
    "OnInterrupt",
    "Owner",
    "OwnerKind",
    "PayloadSealed",
    "ProtocolError",
    "Quota",
    "QuotaExceeded",
    "RaincheckError",
    "Reply",
    "Retention",
    "RetryPolicy",
    "SchemaMismatch",
    "Settings",
    "StaleChange",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "StoreUnavailable",
    "SyncChild",
    "SyncTaskContext",
    "SyncVariables",
    "TaskContext",
    "TaskError",
    "TaskFailed",
    "TaskNotFound",
    "TaskPolicy",
    "TaskTool",
    "Tasks",
    "TooLarge",
    "ToolError",
    "Toolbox",
    "TransitionRefused",
    "UnknownTool",
    "Variables",
    "WrongState",
    "open_store",
    "run_until_signal",
]


# Imported on first use. The SDK takes most of a second to import; workers and processes of tools do without it. The
# engine takes less; a process that only calls tasks on other servers does without that, too. The list of commands needs
# nothing of the package.
if not TYPE_CHECKING:
    # Hidden from type checkers, so that they report names that do not exist.
    __getattr__ = lazy_exports(
        __name__,
        {
            "raincheck.core.owner": "Owner OwnerKind",
            "raincheck.core.policies": "Limits OnInterrupt Quota Retention RetryPolicy",
            "raincheck.core.values": "Json",
            "raincheck.engine": (
                "Child Engine Reply Settings SyncChild SyncTaskContext SyncVariables TaskContext Toolbox Variables "
                "run_until_signal"
            ),
            "raincheck.engine.tool": "TaskTool",
            "raincheck.errors": (
                "AlreadyRecorded CancelRefused CheckpointMismatch ConfigurationError IdempotencyConflict "
                "IllegalTransition InvalidValue LeaseLost NotAStore NotJson PayloadSealed ProtocolError "
                "QuotaExceeded RaincheckError SchemaMismatch StaleChange StoreCorrupt StoreError StoreFull "
                "StoreReadOnly StoreUnavailable TaskError TaskFailed TaskNotFound TooLarge ToolError "
                "TransitionRefused UnknownTool WrongState"
            ),
            "raincheck.server": "Tasks",
            "raincheck.server.tools.policy": "TaskPolicy",
            "raincheck.stores.factory": "open_store",
            "raincheck.wire.fallback_text": "FallbackTools",
        },
    )


def __dir__() -> list[str]:
    return [*__all__]
