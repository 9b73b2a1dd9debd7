"""The protocol between the engine and workflows whose tasks are instances. `raincheck.workflows` implements it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, TypeAlias

from raincheck.core.values import Json
from raincheck.errors import RaincheckError

EndKind: TypeAlias = Literal["success", "failure", "cancel"]

CancelReason: TypeAlias = Literal["already-completed", "not-cancellable", "no-cancel-transition"]


@dataclass(frozen=True, slots=True)
class InstanceSnapshot:
    """The state and data of an instance."""

    state: str
    number: int
    since: datetime
    input: Mapping[str, Json]
    data: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class PlannedTransition:
    """A transition that the workflow allows, with its target state and the instance's data after it."""

    action: str
    to: str
    data: Mapping[str, Json]
    kind: EndKind | None = None
    """The kind of end state, if the target state is one."""
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class AvailableTransition:
    """A transition out of an instance's state. `closed` is the reason why it can't be taken now."""

    action: str
    to: str
    requires_reason: bool
    closed: str | None = None


class TransitionClosed(RaincheckError):
    """The workflow does not allow the transition. The message says why."""


class NotCancellable(RaincheckError):
    """The workflow does not allow the instance to be cancelled. The message says why."""

    def __init__(self, reason: CancelReason, message: str) -> None:
        super().__init__(message)
        self.reason: CancelReason = reason


class StateMachine(Protocol):
    """A workflow with states. It has no side effects: it plans transitions, and the engine performs them."""

    @property
    def initial(self) -> str:
        """The state that instances start in."""
        ...

    def fire(
        self,
        snapshot: InstanceSnapshot,
        action: str,
        data: Mapping[str, Json] | None = None,
        reason: str | None = None,
    ) -> PlannedTransition:
        """Plan a transition.

        Raises:
            TransitionClosed: the transition does not exist, or may not be taken now.
        """
        ...

    def cancel(self, snapshot: InstanceSnapshot, reason: str | None = None) -> PlannedTransition:
        """Plan the transition that cancels the instance.

        Raises:
            NotCancellable: there is none, or it may not be taken now.
        """
        ...

    def available(self, snapshot: InstanceSnapshot) -> Sequence[AvailableTransition]:
        """Return the transitions out of the state."""
        ...
