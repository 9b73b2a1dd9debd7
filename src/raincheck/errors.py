"""Every error that raincheck raises, grouped by the reaction of the code that catches it.

    RaincheckError
    ├── TaskError                  about one task; carries its id
    │   ├── TaskNotFound           unknown, expired, or another owner's: the three are indistinguishable
    │   ├── IllegalTransition      the task's phase does not allow it; nothing changed
    │   ├── WrongState             the instance is in another state than the one that was decided on
    │   ├── TransitionRefused      the workflow does not allow the transition now; nothing changed
    │   ├── CancelRefused          the workflow does not allow the instance to be cancelled now
    │   ├── LeaseLost              the attempt no longer holds the task: stop quietly, never retry the write
    │   ├── StaleChange            the task changed since it was read: read it again and decide again
    │   ├── AlreadyRecorded        a step, input request or id that exists already; nothing changed
    │   ├── IdempotencyConflict    the key was used for a different request
    │   ├── CheckpointMismatch     the body is not the one that recorded the task's checkpoints: version the tool
    │   └── TaskFailed             a child task ended without a result
    ├── InvalidValue               a value that can't be accepted
    │   ├── NotJson                not JSON
    │   ├── PayloadSealed          encrypted, and the key is not available
    │   ├── TooLarge               beyond a documented limit
    │   └── UnknownTool            no tool of that name
    ├── QuotaExceeded              the owner has too many tasks: try again later
    ├── StoreError                 the store operation failed; the driver's error is the `__cause__`
    │   ├── StoreUnavailable       busy or not reachable: a retry is reasonable
    │   ├── StoreFull              no space left
    │   ├── StoreReadOnly          the store can't be written
    │   ├── StoreCorrupt           the store is damaged
    │   ├── NotAStore              the file or schema holds data of another program
    │   └── SchemaMismatch         written by another version of raincheck
    ├── ToolError                  raised by a tool's body: an error for its caller to read
    ├── ProtocolError              raised by a tool's body: a JSON-RPC error, with which the task fails
    └── ConfigurationError         raised at configuration time, not at first use

A message states what happened, what it happened to, and what to do. Facts that a program may need are attributes.
"""

import math
from collections.abc import Iterable
from datetime import timedelta
from typing import Self


class RaincheckError(Exception):
    """The base of every error that raincheck raises."""


class TaskError(RaincheckError):
    """An error about one task."""

    def __init__(self, task_id: str, message: str) -> None:
        super().__init__(message)
        self.task_id = task_id


class TaskNotFound(TaskError):
    """No such task for this reader.

    An unknown id, an expired task and another owner's task are the same error with the same message, so that an
    id can't be probed for.
    """

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id, f"task {task_id!r} not found: it is unknown, has expired, or is not yours")


class IllegalTransition(TaskError):
    """The task's phase does not allow the event. Nothing changed."""

    def __init__(self, task_id: str, phase: str, event: str) -> None:
        super().__init__(task_id, f"task {task_id!r} is {phase!s}: {str(event)!r} is not possible; nothing changed")
        self.phase = phase
        self.event = event


class WrongState(TaskError):
    """The instance is not in the state that the transition starts from. Nothing changed."""

    def __init__(self, task_id: str, action: str, expected: str, state: str | None) -> None:
        where = "is not an instance" if state is None else f"is in state {state!r}"
        super().__init__(
            task_id, f"task {task_id!r} {where}: {action!r} was decided in {expected!r}; nothing changed: read it again"
        )
        self.action = action
        self.state = state


class TransitionRefused(TaskError):
    """The workflow does not allow the transition now. Nothing changed."""

    def __init__(self, task_id: str, action: str, state: str, explanation: str) -> None:
        super().__init__(task_id, f"task {task_id!r} is in state {state!r}: {action!r} is closed: {explanation}")
        self.action = action
        self.state = state
        self.explanation = explanation


class CancelRefused(TaskError):
    """The workflow does not allow the instance to be cancelled now. Nothing changed. `reason` is machine-readable."""

    def __init__(self, task_id: str, reason: str, explanation: str) -> None:
        super().__init__(task_id, f"task {task_id!r} can't be cancelled ({reason}): {explanation}")
        self.reason = reason
        self.explanation = explanation


class LeaseLost(TaskError):
    """The attempt no longer holds the task. Stop quietly: every write of the attempt is refused."""

    def __init__(self, task_id: str, attempt: int) -> None:
        reason = "it ended, was never claimed, or another attempt started"
        message = f"attempt {attempt} does not hold task {task_id!r} ({reason}): stop the work, its writes are refused"
        super().__init__(task_id, message)
        self.attempt = attempt


class StaleChange(TaskError):
    """The task changed since it was read. Nothing was written: read it again and decide again."""

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id, f"task {task_id!r} changed since it was read: read it again and decide again")


class AlreadyRecorded(TaskError):
    """A task with this id, or a part of a task that may exist only once, already exists. Nothing was written."""

    def __init__(self, task_id: str, what: str = "been created") -> None:
        message = f"task {task_id!r} already has {what}; nothing was written: use a new name, or read the existing one"
        super().__init__(task_id, message)
        self.what = what

    @classmethod
    def step(cls, task_id: str, name: str, occurrence: int) -> Self:
        return cls(task_id, f"step {name!r} ({occurrence})")

    @classmethod
    def input_request(cls, task_id: str, key: str) -> Self:
        return cls(task_id, f"question {key!r}")


class IdempotencyConflict(TaskError):
    """The idempotency key was used for a different request. `task_id` is the task that has the key."""

    def __init__(self, task_id: str, key: str) -> None:
        message = f"idempotency key {key!r} already belongs to task {task_id!r}, which was created for another tool"
        super().__init__(task_id, f"{message} or other arguments: use a new key for a new request")
        self.key = key


class CheckpointMismatch(TaskError):
    """The body requests other checkpoints than the task has recorded, so it can't resume from them."""


class TaskFailed(TaskError):
    """A task that was awaited ended without a result. `phase` is its final phase, `error` the error it left."""

    def __init__(self, task_id: str, phase: str, message: str, error: object) -> None:
        outcome = "reported an error" if phase == "completed" else phase
        super().__init__(task_id, f"task {task_id!r} {outcome}: {message}")
        self.phase = phase
        self.error = error


class InvalidValue(RaincheckError, ValueError):
    """A value that can't be accepted."""


class NotJson(InvalidValue):
    """A value that JSON can't represent."""


class PayloadSealed(InvalidValue):
    """The payload is encrypted and was read without its key."""


class TooLarge(InvalidValue):
    """A value beyond its limit. Nothing was written."""

    def __init__(self, what: str, size: int, limit: int, unit: str = "bytes") -> None:
        super().__init__(f"{what} has {size:,} {unit}, and {limit:,} are allowed: send less, or raise the limit")
        self.what = what
        self.size = size
        self.limit = limit


class UnknownTool(InvalidValue):
    """No tool of that name exists."""

    def __init__(self, name: str, existing: Iterable[str]) -> None:
        names = ", ".join(sorted(existing))
        super().__init__(f"there is no tool {name!r}: {f'the tools are {names}' if names else 'no tool is registered'}")
        self.name = name


class QuotaExceeded(RaincheckError):
    """The owner has reached a limit on tasks. Nothing was created."""

    def __init__(
        self,
        which: str,
        limit: int,
        retry_after: timedelta | None,
        *,
        scope: str = "for one owner",
        alternative: str | None = None,
    ) -> None:
        when = "when one of them has ended" if retry_after is None else f"in {math.ceil(retry_after.total_seconds())} s"
        remedy = f"try again {when}{'' if alternative is None else f', or {alternative}'}"
        super().__init__(f"too many {which} (at most {limit} {scope}): {remedy}")
        self.which = which
        self.limit = limit
        self.retry_after = retry_after


class StoreError(RaincheckError):
    """The store operation failed. Nothing is half-written."""

    def __init__(self, store: str, message: str) -> None:
        super().__init__(f"{store}: {message}")
        self.store = store


class StoreUnavailable(StoreError):
    """The store is busy, closed or unreachable. A retry is reasonable."""


class StoreFull(StoreError):
    """The store has no space left."""


class StoreReadOnly(StoreError):
    """The store can't be written."""


class StoreCorrupt(StoreError):
    """The store is damaged."""


class NotAStore(StoreError):
    """The file or schema was not created by raincheck. It was left untouched."""


class SchemaMismatch(StoreError):
    """The store was written by a newer raincheck. It was left untouched."""

    def __init__(self, store: str, found: int, known: int) -> None:
        message = f"its schema is version {found}, and this raincheck knows versions up to {known}"
        super().__init__(store, f"{message}: upgrade raincheck, or name another store")
        self.found = found
        self.known = known


class ToolError(RaincheckError):
    """An error for the caller of the tool to read: the task completes with `content`, or else with the message."""

    def __init__(self, message: str, content: object = None) -> None:
        super().__init__(message)
        self.content = content


class ProtocolError(RaincheckError):
    """A JSON-RPC error raised by a tool's body: the task fails with it and is not retried."""

    def __init__(self, message: str, code: int, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class ConfigurationError(RaincheckError):
    """A configuration that can't work."""


def is_raincheck_error(kind: type) -> bool:
    """Return whether `kind` is one of the classes defined here, as opposed to a subclass defined elsewhere."""
    return kind.__module__ == __name__
