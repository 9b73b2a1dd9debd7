"""What kinds of actions have in common: on which occasion they are done, and how they fail."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from raincheck.core.payload import Json
from raincheck.engine.context import TaskContext
from raincheck.errors import RaincheckError
from raincheck.workflows.action_model import ErrorKind
from raincheck.workflows.expressions import Scope


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
