"""The single decision function: (task, command, now) → change.

`decide` takes a task as it was read and returns the change that a command would make. It modifies nothing: a store
commits the change, and only if the task is still the one that was read. So a rule is written once, is pure, and holds
for every store.
"""

from datetime import datetime
from typing import assert_never

from raincheck.core import attempt_rules, commands, control_rules
from raincheck.core.change import Change
from raincheck.core.limits import Limits
from raincheck.core.records import Task

DEFAULT_LIMITS = Limits()


def decide(task: Task, command: commands.Command, now: datetime, limits: Limits = DEFAULT_LIMITS) -> Change | None:
    """Return the change that the command makes to the task; None if there is nothing to change.

    Raises:
        IllegalTransition: the task's phase does not allow it.
        LeaseLost: the command comes from an attempt that no longer holds the task.
        WrongState: the instance is not in the state that the command was decided in.
        TooLarge: a value in the command exceeds its limit.
    """
    match command:
        case commands.Claim():
            return attempt_rules.claim(task, command, now)
        case (
            commands.Note()
            | commands.Park()
            | commands.Release()
            | commands.Yield()
            | commands.Complete()
            | commands.Fail()
        ):
            return attempt_rules.decide_attempt_command(task, command, now, limits)
        case commands.Interrupt():
            return attempt_rules.interrupt(task, command, now)
        case commands.Expire():
            return attempt_rules.expire(task, command, now)
        case commands.Due():
            return control_rules.due(task, command, now)
        case commands.Signal():
            return control_rules.signal(task, command, now)
        case commands.Answer():
            return control_rules.answer(task, command, now, limits)
        case commands.TakeTransition():
            return control_rules.transition(task, command, now, limits)
        case commands.Cancel():
            return control_rules.cancel(task, command, now)
        case commands.Pause():
            return control_rules.pause(task, command, now)
        case commands.Resume():
            return control_rules.resume(task, command, now)
        case _:
            assert_never(command)
