"""Task storage: open a store, use it, or write one of your own.

- To open one: `open_store`. To read and change its tasks: the methods of `Store`, with `apply`, `answer` and `sweep`.
- To write one: `Store` and `Capabilities` state the contract, `Documents` is most of a store on a key-value database,
  `SqlStore` is half of one on a SQL database, and `raincheck.testing.StoreContract` tests the result. Start at
  docs/stores/writing-a-store.md.
- To deliver attempts to workers: `Dispatcher`, `JobConsumer` and `JobQueue`.

Concrete stores and their drivers are imported when a store is opened.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raincheck.core.change import Change, Creation, NewTask
    from raincheck.core.commands import (
        Answer,
        Cancel,
        Claim,
        Command,
        Complete,
        Due,
        Expire,
        Fail,
        Interrupt,
        Note,
        Park,
        Pause,
        Release,
        Resume,
        Signal,
        TakeTransition,
        Yield,
    )
    from raincheck.core.effects import (
        Family,
        QueuePosition,
        enters_queue,
        may_prune,
        next_turn,
        queue_key,
        turn_after,
        turn_group,
        write_with_relatives,
    )
    from raincheck.core.histogram import DurationHistogram, merge_histograms
    from raincheck.core.lifecycle import Event, Phase, Status
    from raincheck.core.owner import Owner, Scope
    from raincheck.core.policies import OnInterrupt, Quota, Retention, RetryPolicy
    from raincheck.core.records import (
        Artifact,
        Attempt,
        HistoryEntry,
        InputKind,
        InputRequest,
        InstanceState,
        Journal,
        Lease,
        Progress,
        Step,
        Task,
        TaskId,
        Tool,
        View,
    )
    from raincheck.core.values import Json, Payload, decode, encode
    from raincheck.errors import (
        AlreadyRecorded,
        IdempotencyConflict,
        LeaseLost,
        NotAStore,
        QuotaExceeded,
        SchemaMismatch,
        StaleChange,
        StoreCorrupt,
        StoreError,
        StoreFull,
        StoreReadOnly,
        StoreUnavailable,
        TaskNotFound,
    )
    from raincheck.stores.base import Capabilities, Store, StoreReader, iterate_tasks
    from raincheck.stores.change_feed import ANY_TASK, ChangeBroadcaster, ChangeFeed, ChangeHint
    from raincheck.stores.commit import answer, apply, sweep
    from raincheck.stores.dispatcher import AttemptFuture, Dispatcher, JobConsumer, JobQueue
    from raincheck.stores.documents import Documents, TaskDocument, count_live, count_states
    from raincheck.stores.factory import open_store
    from raincheck.stores.requests import (
        DUE_LIMIT,
        DUE_NOW,
        PAGE_LIMIT,
        ClaimRequest,
        HeldAttempt,
        Page,
        PageCursor,
        TaskQuery,
        build_page,
        check_definitions,
        check_distinct_tasks,
        check_durations,
        check_secret_name,
        clamp_limit,
        find_next_due,
        find_overdue,
        generate_secret,
    )
    from raincheck.stores.sql_store import Plan, SqlStore, Statement

__all__ = [
    "ANY_TASK",
    "DUE_LIMIT",
    "DUE_NOW",
    "PAGE_LIMIT",
    "AlreadyRecorded",
    "Answer",
    "Artifact",
    "Attempt",
    "AttemptFuture",
    "Cancel",
    "Capabilities",
    "Change",
    "ChangeBroadcaster",
    "ChangeFeed",
    "ChangeHint",
    "Claim",
    "ClaimRequest",
    "Command",
    "Complete",
    "Creation",
    "Dispatcher",
    "Documents",
    "Due",
    "DurationHistogram",
    "Event",
    "Expire",
    "Fail",
    "Family",
    "HeldAttempt",
    "HistoryEntry",
    "IdempotencyConflict",
    "InputKind",
    "InputRequest",
    "InstanceState",
    "Interrupt",
    "JobConsumer",
    "JobQueue",
    "Journal",
    "Json",
    "Lease",
    "LeaseLost",
    "NewTask",
    "NotAStore",
    "Note",
    "OnInterrupt",
    "Owner",
    "Page",
    "PageCursor",
    "Park",
    "Pause",
    "Payload",
    "Phase",
    "Plan",
    "Progress",
    "QueuePosition",
    "Quota",
    "QuotaExceeded",
    "Release",
    "Resume",
    "Retention",
    "RetryPolicy",
    "SchemaMismatch",
    "Scope",
    "Signal",
    "SqlStore",
    "StaleChange",
    "Statement",
    "Status",
    "Step",
    "Store",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "StoreReader",
    "StoreUnavailable",
    "TakeTransition",
    "Task",
    "TaskDocument",
    "TaskId",
    "TaskNotFound",
    "TaskQuery",
    "Tool",
    "View",
    "Yield",
    "answer",
    "apply",
    "build_page",
    "check_definitions",
    "check_distinct_tasks",
    "check_durations",
    "check_secret_name",
    "clamp_limit",
    "count_live",
    "count_states",
    "decode",
    "encode",
    "enters_queue",
    "find_next_due",
    "find_overdue",
    "generate_secret",
    "iterate_tasks",
    "may_prune",
    "merge_histograms",
    "next_turn",
    "open_store",
    "queue_key",
    "sweep",
    "turn_after",
    "turn_group",
    "write_with_relatives",
]

# Searched in this order at the first use of a name, so that importing a single module of this package imports no other.
_HOMES = (
    "raincheck.stores.requests",
    "raincheck.stores.base",
    "raincheck.stores.change_feed",
    "raincheck.stores.dispatcher",
    "raincheck.stores.commit",
    "raincheck.stores.documents",
    "raincheck.stores.sql_store",
    "raincheck.core.records",
    "raincheck.core.change",
    "raincheck.core.commands",
    "raincheck.core.values",
    "raincheck.core.lifecycle",
    "raincheck.core.owner",
    "raincheck.core.policies",
    "raincheck.core.histogram",
    "raincheck.core.effects",
    "raincheck.errors",
    "raincheck.stores.factory",
)

if not TYPE_CHECKING:
    # Hidden from type checkers, so that they report names that do not exist.
    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        homes = (vars(import_module(home)) for home in _HOMES)
        found = globals()[name] = next(home[name] for home in homes if name in home)
        return found


def __dir__() -> list[str]:
    return [*__all__]
