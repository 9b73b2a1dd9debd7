"""Errors about one task."""

from typing import Self

from raincheck.errors.base import RaincheckError


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
        super().__init__(task_id, f"task {task_id!r} is {phase!s}: it can't take {str(event)!r}; nothing changed")
        self.phase = phase
        self.event = event


class WrongState(TaskError):
    """The process is not in the state that the transition begins in. Nothing changed."""

    def __init__(self, task_id: str, action: str, expected: str, state: str | None) -> None:
        where = "is no process" if state is None else f"is in state {state!r}"
        super().__init__(
            task_id, f"task {task_id!r} {where}: {action!r} was decided in {expected!r}; nothing changed, look again"
        )
        self.action = action
        self.state = state


class TransitionRefused(TaskError):
    """The workflow does not allow the transition now. Nothing changed."""

    def __init__(self, task_id: str, action: str, state: str, why: str) -> None:
        super().__init__(task_id, f"task {task_id!r} is in state {state!r}: {action!r} is closed, since {why}")
        self.action = action
        self.state = state
        self.why = why


class CancelRefused(TaskError):
    """The workflow does not let the process be cancelled now. Nothing changed. `reason` is a word for programs."""

    def __init__(self, task_id: str, reason: str, why: str) -> None:
        super().__init__(task_id, f"task {task_id!r} can't be cancelled ({reason}): {why}")
        self.reason = reason
        self.why = why


class LeaseLost(TaskError):
    """The attempt no longer holds the task. Stop quietly: whatever it would write is refused."""

    def __init__(self, task_id: str, attempt: int) -> None:
        why = "it ended, was never claimed, or another attempt began"
        message = f"attempt {attempt} does not hold task {task_id!r} ({why}): stop the work, its writes are refused"
        super().__init__(task_id, message)
        self.attempt = attempt


class StaleChange(TaskError):
    """The task changed since it was read. Nothing was written: read it again and decide anew."""

    def __init__(self, task_id: str) -> None:
        super().__init__(task_id, f"task {task_id!r} changed since it was read: load it again and decide anew")


class AlreadyRecorded(TaskError):
    """Something that may exist only once on a task, or a task of that id, exists already. Nothing was written."""

    def __init__(self, task_id: str, what: str = "been created") -> None:
        message = f"task {task_id!r} already has {what}; nothing was written: use a new name, or read what is there"
        super().__init__(task_id, message)
        self.what = what

    @classmethod
    def step(cls, task_id: str, name: str, occurrence: int) -> Self:
        return cls(task_id, f"step {name!r} ({occurrence})")

    @classmethod
    def question(cls, task_id: str, key: str) -> Self:
        return cls(task_id, f"question {key!r}")


class IdempotencyConflict(TaskError):
    """The idempotency key was used for a different request. `task_id` is the task that has the key."""

    def __init__(self, task_id: str, key: str) -> None:
        message = f"idempotency key {key!r} already belongs to task {task_id!r}, which was asked for another tool"
        super().__init__(task_id, f"{message} or with other arguments: use a new key for a new request")
        self.key = key


class CheckpointMismatch(TaskError):
    """The body asks for other checkpoints than the task has recorded, so it can't go on from them."""


class TaskFailed(TaskError):
    """A task whose result was waited for ended without one. `phase` is how it ended, `error` what it left."""

    def __init__(self, task_id: str, phase: str, message: str, error: object) -> None:
        how = "reported an error" if phase == "completed" else phase
        super().__init__(task_id, f"task {task_id!r} {how}: {message}")
        self.phase = phase
        self.error = error
