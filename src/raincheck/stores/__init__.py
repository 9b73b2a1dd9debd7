"""Task storage: open a store, use it, or write one of your own.

- To open one: `open_store`. To read and change its tasks: the methods of `Store`, with `apply`, `answer` and `sweep`.
- To write one: `Store` and `Capabilities` state the contract, `Documents` is most of a store on a key-value database,
  `SqlStore` is half of one on a SQL database, and `raincheck.testing.StoreContract` tests the result. Start at
  docs/stores/writing-a-store.md.
- To deliver attempts to workers: `Dispatcher`, `JobConsumer` and `JobQueue`.

Concrete stores and their drivers are imported when a store is opened.
"""

from typing import TYPE_CHECKING

from raincheck._lazy import lazy_exports

if TYPE_CHECKING:
    from raincheck.core.change import Change as Change
    from raincheck.core.change import Creation as Creation
    from raincheck.core.change import NewTask as NewTask
    from raincheck.core.commands import Answer as Answer
    from raincheck.core.commands import Cancel as Cancel
    from raincheck.core.commands import Claim as Claim
    from raincheck.core.commands import Command as Command
    from raincheck.core.commands import Complete as Complete
    from raincheck.core.commands import Due as Due
    from raincheck.core.commands import Expire as Expire
    from raincheck.core.commands import Fail as Fail
    from raincheck.core.commands import Interrupt as Interrupt
    from raincheck.core.commands import Note as Note
    from raincheck.core.commands import Park as Park
    from raincheck.core.commands import Pause as Pause
    from raincheck.core.commands import Release as Release
    from raincheck.core.commands import Resume as Resume
    from raincheck.core.commands import Signal as Signal
    from raincheck.core.commands import TakeTransition as TakeTransition
    from raincheck.core.commands import Yield as Yield
    from raincheck.core.effects import Family as Family
    from raincheck.core.effects import QueuePosition as QueuePosition
    from raincheck.core.effects import enters_queue as enters_queue
    from raincheck.core.effects import may_prune as may_prune
    from raincheck.core.effects import next_turn as next_turn
    from raincheck.core.effects import queue_key as queue_key
    from raincheck.core.effects import turn_after as turn_after
    from raincheck.core.effects import turn_group as turn_group
    from raincheck.core.effects import write_with_relatives as write_with_relatives
    from raincheck.core.histogram import DurationHistogram as DurationHistogram
    from raincheck.core.histogram import merge_histograms as merge_histograms
    from raincheck.core.lifecycle import Event as Event
    from raincheck.core.lifecycle import Phase as Phase
    from raincheck.core.lifecycle import Status as Status
    from raincheck.core.owner import Owner as Owner
    from raincheck.core.owner import Scope as Scope
    from raincheck.core.policies import OnInterrupt as OnInterrupt
    from raincheck.core.policies import Quota as Quota
    from raincheck.core.policies import Retention as Retention
    from raincheck.core.policies import RetryPolicy as RetryPolicy
    from raincheck.core.records import Artifact as Artifact
    from raincheck.core.records import Attempt as Attempt
    from raincheck.core.records import HistoryEntry as HistoryEntry
    from raincheck.core.records import InputKind as InputKind
    from raincheck.core.records import InputRequest as InputRequest
    from raincheck.core.records import InstanceState as InstanceState
    from raincheck.core.records import Journal as Journal
    from raincheck.core.records import Lease as Lease
    from raincheck.core.records import Progress as Progress
    from raincheck.core.records import Step as Step
    from raincheck.core.records import Task as Task
    from raincheck.core.records import TaskId as TaskId
    from raincheck.core.records import Tool as Tool
    from raincheck.core.records import View as View
    from raincheck.core.values import Json as Json
    from raincheck.core.values import Payload as Payload
    from raincheck.core.values import decode as decode
    from raincheck.core.values import encode as encode
    from raincheck.errors import AlreadyRecorded as AlreadyRecorded
    from raincheck.errors import IdempotencyConflict as IdempotencyConflict
    from raincheck.errors import LeaseLost as LeaseLost
    from raincheck.errors import NotAStore as NotAStore
    from raincheck.errors import QuotaExceeded as QuotaExceeded
    from raincheck.errors import SchemaMismatch as SchemaMismatch
    from raincheck.errors import StaleChange as StaleChange
    from raincheck.errors import StoreCorrupt as StoreCorrupt
    from raincheck.errors import StoreError as StoreError
    from raincheck.errors import StoreFull as StoreFull
    from raincheck.errors import StoreReadOnly as StoreReadOnly
    from raincheck.errors import StoreUnavailable as StoreUnavailable
    from raincheck.errors import TaskNotFound as TaskNotFound
    from raincheck.stores.base import Capabilities as Capabilities
    from raincheck.stores.base import Store as Store
    from raincheck.stores.base import StoreReader as StoreReader
    from raincheck.stores.base import iterate_tasks as iterate_tasks
    from raincheck.stores.change_feed import ANY_TASK as ANY_TASK
    from raincheck.stores.change_feed import ChangeBroadcaster as ChangeBroadcaster
    from raincheck.stores.change_feed import ChangeFeed as ChangeFeed
    from raincheck.stores.change_feed import ChangeHint as ChangeHint
    from raincheck.stores.commit import answer as answer
    from raincheck.stores.commit import apply as apply
    from raincheck.stores.commit import sweep as sweep
    from raincheck.stores.dispatcher import AttemptFuture as AttemptFuture
    from raincheck.stores.dispatcher import Dispatcher as Dispatcher
    from raincheck.stores.dispatcher import JobConsumer as JobConsumer
    from raincheck.stores.dispatcher import JobQueue as JobQueue
    from raincheck.stores.documents import Documents as Documents
    from raincheck.stores.documents import TaskDocument as TaskDocument
    from raincheck.stores.documents import count_live as count_live
    from raincheck.stores.documents import count_states as count_states
    from raincheck.stores.factory import open_store as open_store
    from raincheck.stores.requests import DUE_LIMIT as DUE_LIMIT
    from raincheck.stores.requests import DUE_NOW as DUE_NOW
    from raincheck.stores.requests import PAGE_LIMIT as PAGE_LIMIT
    from raincheck.stores.requests import ClaimRequest as ClaimRequest
    from raincheck.stores.requests import HeldAttempt as HeldAttempt
    from raincheck.stores.requests import Page as Page
    from raincheck.stores.requests import PageCursor as PageCursor
    from raincheck.stores.requests import TaskQuery as TaskQuery
    from raincheck.stores.requests import build_page as build_page
    from raincheck.stores.requests import check_definitions as check_definitions
    from raincheck.stores.requests import check_distinct_tasks as check_distinct_tasks
    from raincheck.stores.requests import check_durations as check_durations
    from raincheck.stores.requests import check_secret_name as check_secret_name
    from raincheck.stores.requests import clamp_limit as clamp_limit
    from raincheck.stores.requests import find_next_due as find_next_due
    from raincheck.stores.requests import find_overdue as find_overdue
    from raincheck.stores.requests import generate_secret as generate_secret
    from raincheck.stores.sql_store import Plan as Plan
    from raincheck.stores.sql_store import SqlStore as SqlStore
    from raincheck.stores.sql_store import Statement as Statement
else:
    # Imported on first use, so that importing a single module of this package imports no other.
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "raincheck.core.change": "Change Creation NewTask",
            "raincheck.core.commands": (
                "Answer Cancel Claim Command Complete Due Expire Fail Interrupt Note Park Pause Release Resume Signal "
                "TakeTransition Yield"
            ),
            "raincheck.core.effects": (
                "Family QueuePosition enters_queue may_prune next_turn queue_key turn_after turn_group "
                "write_with_relatives"
            ),
            "raincheck.core.histogram": "DurationHistogram merge_histograms",
            "raincheck.core.lifecycle": "Event Phase Status",
            "raincheck.core.owner": "Owner Scope",
            "raincheck.core.policies": "OnInterrupt Quota Retention RetryPolicy",
            "raincheck.core.records": (
                "Artifact Attempt HistoryEntry InputKind InputRequest InstanceState Journal Lease Progress Step Task "
                "TaskId Tool View"
            ),
            "raincheck.core.values": "Json Payload decode encode",
            "raincheck.errors": (
                "AlreadyRecorded IdempotencyConflict LeaseLost NotAStore QuotaExceeded SchemaMismatch StaleChange "
                "StoreCorrupt StoreError StoreFull StoreReadOnly StoreUnavailable TaskNotFound"
            ),
            "raincheck.stores.base": "Capabilities Store StoreReader iterate_tasks",
            "raincheck.stores.change_feed": "ANY_TASK ChangeBroadcaster ChangeFeed ChangeHint",
            "raincheck.stores.commit": "answer apply sweep",
            "raincheck.stores.dispatcher": "AttemptFuture Dispatcher JobConsumer JobQueue",
            "raincheck.stores.documents": "Documents TaskDocument count_live count_states",
            "raincheck.stores.factory": "open_store",
            "raincheck.stores.requests": (
                "DUE_LIMIT DUE_NOW PAGE_LIMIT ClaimRequest HeldAttempt Page PageCursor TaskQuery build_page "
                "check_definitions check_distinct_tasks check_durations check_secret_name clamp_limit find_next_due "
                "find_overdue generate_secret"
            ),
            "raincheck.stores.sql_store": "Plan SqlStore Statement",
        },
    )
