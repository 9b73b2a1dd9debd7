"""raincheck: durable, long-running MCP tasks. The call returns a task id at once, and the result later.

Public are the names in `__all__` of this package and of `raincheck.client`, `raincheck.workflows`, `raincheck.fastmcp`,
`raincheck.stores`, `raincheck.testing` and `raincheck.conformance`. Everything else is internal.
"""

from typing import TYPE_CHECKING

from raincheck._lazy import lazy_exports

if TYPE_CHECKING:
    from raincheck.core.owner import Owner as Owner
    from raincheck.core.owner import OwnerKind as OwnerKind
    from raincheck.core.policies import Limits as Limits
    from raincheck.core.policies import OnInterrupt as OnInterrupt
    from raincheck.core.policies import Quota as Quota
    from raincheck.core.policies import Retention as Retention
    from raincheck.core.policies import RetryPolicy as RetryPolicy
    from raincheck.core.values import Json as Json
    from raincheck.engine import Child as Child
    from raincheck.engine import Engine as Engine
    from raincheck.engine import Reply as Reply
    from raincheck.engine import Settings as Settings
    from raincheck.engine import SyncChild as SyncChild
    from raincheck.engine import SyncTaskContext as SyncTaskContext
    from raincheck.engine import SyncVariables as SyncVariables
    from raincheck.engine import TaskContext as TaskContext
    from raincheck.engine import Toolbox as Toolbox
    from raincheck.engine import Variables as Variables
    from raincheck.engine import run_until_signal as run_until_signal
    from raincheck.engine.tool import TaskTool as TaskTool
    from raincheck.errors import AlreadyRecorded as AlreadyRecorded
    from raincheck.errors import CancelRefused as CancelRefused
    from raincheck.errors import CheckpointMismatch as CheckpointMismatch
    from raincheck.errors import ConfigurationError as ConfigurationError
    from raincheck.errors import IdempotencyConflict as IdempotencyConflict
    from raincheck.errors import IllegalTransition as IllegalTransition
    from raincheck.errors import InvalidValue as InvalidValue
    from raincheck.errors import LeaseLost as LeaseLost
    from raincheck.errors import NotAStore as NotAStore
    from raincheck.errors import NotJson as NotJson
    from raincheck.errors import PayloadSealed as PayloadSealed
    from raincheck.errors import ProtocolError as ProtocolError
    from raincheck.errors import QuotaExceeded as QuotaExceeded
    from raincheck.errors import RaincheckError as RaincheckError
    from raincheck.errors import SchemaMismatch as SchemaMismatch
    from raincheck.errors import StaleChange as StaleChange
    from raincheck.errors import StoreCorrupt as StoreCorrupt
    from raincheck.errors import StoreError as StoreError
    from raincheck.errors import StoreFull as StoreFull
    from raincheck.errors import StoreReadOnly as StoreReadOnly
    from raincheck.errors import StoreUnavailable as StoreUnavailable
    from raincheck.errors import TaskError as TaskError
    from raincheck.errors import TaskFailed as TaskFailed
    from raincheck.errors import TaskNotFound as TaskNotFound
    from raincheck.errors import TooLarge as TooLarge
    from raincheck.errors import ToolError as ToolError
    from raincheck.errors import TransitionRefused as TransitionRefused
    from raincheck.errors import UnknownTool as UnknownTool
    from raincheck.errors import WrongState as WrongState
    from raincheck.server import Tasks as Tasks
    from raincheck.server.tools.policy import TaskPolicy as TaskPolicy
    from raincheck.stores.factory import open_store as open_store
    from raincheck.wire.fallback_text import FallbackTools as FallbackTools
else:
    # Imported on first use. The SDK takes most of a second to import; workers and processes of tools do without it. The
    # engine takes less; a process that only calls tasks on other servers does without that, too. The list of commands
    # needs nothing of the package.
    __all__, __getattr__, __dir__ = lazy_exports(
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
                "IllegalTransition InvalidValue LeaseLost NotAStore NotJson PayloadSealed ProtocolError QuotaExceeded "
                "RaincheckError SchemaMismatch StaleChange StoreCorrupt StoreError StoreFull StoreReadOnly "
                "StoreUnavailable TaskError TaskFailed TaskNotFound TooLarge ToolError TransitionRefused UnknownTool "
                "WrongState"
            ),
            "raincheck.server": "Tasks",
            "raincheck.server.tools.policy": "TaskPolicy",
            "raincheck.stores.factory": "open_store",
            "raincheck.wire.fallback_text": "FallbackTools",
        },
    )
