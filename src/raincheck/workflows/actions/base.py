"""What kinds of actions have in common: on which occasion they are done, and how they fail.

Steps that put values together.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from raincheck.core.payload import Json
from raincheck.engine.execution.context import TaskContext
from raincheck.errors import RaincheckError
from raincheck.workflows.expressions.template import Scope, Template
from raincheck.workflows.parsing.models import ErrorKind
from raincheck.workflows.permissions import Surroundings


class ActionFailed(RaincheckError):
    """An action that could not be done. `kind` says in which way."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind


@dataclass(frozen=True, slots=True)
class Occasion:
    """One time that an action is done."""

    task: TaskContext
    name: str
    """Of its checkpoint: no other occasion of the task has it."""
    scope: Scope

    def within(self, env: Mapping[str, str]) -> Scope:
        """The names that expressions can use, with the variables of the environment."""
        return {**self.scope, "env": env}


class Action(Protocol):
    """Something that can be done."""

    waits: bool
    """Whether it waits by means of the task, so that it can't be done within a checkpoint."""
    words: str
    """What it does, in words from the file."""

    async def perform(self, occasion: Occasion) -> Json:
        """Do it.

        Raises:
            ActionFailed, ExpressionFailed: it could not be done.
        """
        ...


class Set:
    """A value. That is its result."""

    waits = False
    words = "set"

    def __init__(self, value: Json, surroundings: Surroundings) -> None:
        self._value = Template.parse(value)
        self._surroundings = surroundings

    async def perform(self, occasion: Occasion) -> Json:
        return self._value.render(occasion.within(self._surroundings.variables()))
