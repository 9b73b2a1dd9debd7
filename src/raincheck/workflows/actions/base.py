"""The interface of actions and their errors, and the `set` action."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from raincheck.core.payload import Json
from raincheck.engine.execution.context import TaskContext
from raincheck.errors import RaincheckError
from raincheck.workflows.expressions.template import Scope, Template
from raincheck.workflows.parsing.models import ErrorKind
from raincheck.workflows.permissions import Permissions


class ActionFailed(RaincheckError):
    """An action failed. `kind` is the kind of failure."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind


@dataclass(frozen=True, slots=True)
class ActionCall:
    """One execution of an action."""

    task: TaskContext
    name: str
    """The name of its checkpoint, which no other call of the task has."""
    scope: Scope

    def scope_with(self, env: Mapping[str, str]) -> Scope:
        """Return the names that expressions can use, with these environment variables."""
        return {**self.scope, "env": env}


class Action(Protocol):
    """An action of a step or a state."""

    waits: bool
    """Whether it waits through the task's context, so that it can't run inside a checkpoint."""
    label: str
    """A description of what it does, in the terms of the file."""

    async def perform(self, call: ActionCall) -> Json:
        """Perform the action and return its result.

        Raises:
            ActionFailed, ExpressionFailed: it failed.
        """
        ...


class SetAction:
    """Evaluate a value. The result is that value."""

    waits = False
    label = "set"

    def __init__(self, value: Json, permissions: Permissions) -> None:
        self._value = Template.parse(value)
        self._permissions = permissions

    async def perform(self, call: ActionCall) -> Json:
        return self._value.render(call.scope_with(self._permissions.environment()))
