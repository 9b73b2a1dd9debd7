"""Every error that raincheck raises, grouped by what the catcher should do.

    RaincheckError
    ├── TaskError                  about one task; carries its id
    │   ├── TaskNotFound           unknown, expired, or somebody else's: the three look alike
    │   ├── IllegalTransition      the task's phase does not allow it; nothing changed
    │   ├── WrongState             the process is in another state than the one that was decided on
    │   ├── TransitionRefused      the workflow does not allow the transition now; nothing changed
    │   ├── CancelRefused          the workflow does not allow the process to be cancelled now
    │   ├── LeaseLost              the attempt no longer holds the task: stop quietly, never try the write again
    │   ├── StaleChange            the task changed since it was read: read it again and decide anew
    │   ├── AlreadyRecorded        a step, question or id that exists already; nothing changed
    │   ├── IdempotencyConflict    the key was used for a different request
    │   ├── CheckpointMismatch     the body is not the one that recorded the task's checkpoints: version the tool
    │   └── TaskFailed            a child task ended without a result
    ├── InvalidValue               a value that can't be taken as it is
    │   ├── NotJson                not JSON
    │   ├── PayloadSealed          encrypted, and no key is at hand
    │   ├── TooLarge               beyond a documented bound
    │   └── UnknownTool            no tool of that name
    ├── QuotaExceeded              the owner has too many tasks: try again later
    ├── StoreError                 the store could not do it; the driver's error is the `__cause__`
    │   ├── StoreUnavailable       busy or not reachable: trying again is reasonable
    │   ├── StoreFull              no room left
    │   ├── StoreReadOnly          the store can't be written
    │   ├── StoreCorrupt           the store is damaged
    │   ├── NotAStore              something else is kept there
    │   └── SchemaMismatch         written by another version of raincheck
    ├── ToolError                  raised by a tool's body: an error that its caller should read
    ├── ProtocolError              raised by a tool's body: a JSON-RPC error, with which the task fails
    └── ConfigurationError         raised when things are put together, not at first use

A message says what happened, to what, and what to do. Facts that a program may want are attributes.
"""

from raincheck.errors.base import ConfigurationError, ProtocolError, RaincheckError, ToolError
from raincheck.errors.stores import (
    NotAStore,
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from raincheck.errors.tasks import (
    AlreadyRecorded,
    CancelRefused,
    CheckpointMismatch,
    IdempotencyConflict,
    IllegalTransition,
    LeaseLost,
    StaleChange,
    TaskError,
    TaskFailed,
    TaskNotFound,
    TransitionRefused,
    WrongState,
)
from raincheck.errors.values import InvalidValue, NotJson, PayloadSealed, QuotaExceeded, TooLarge, UnknownTool

__all__ = [
    "AlreadyRecorded",
    "CancelRefused",
    "CheckpointMismatch",
    "ConfigurationError",
    "IdempotencyConflict",
    "IllegalTransition",
    "InvalidValue",
    "LeaseLost",
    "NotAStore",
    "NotJson",
    "PayloadSealed",
    "ProtocolError",
    "QuotaExceeded",
    "RaincheckError",
    "SchemaMismatch",
    "StaleChange",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "StoreUnavailable",
    "TaskError",
    "TaskFailed",
    "TaskNotFound",
    "TooLarge",
    "ToolError",
    "TransitionRefused",
    "UnknownTool",
    "WrongState",
]


def has(kind: type) -> bool:
    """Whether that is one of these errors, and not one that somebody derived from them."""
    return kind.__module__.startswith(f"{__name__}.")
