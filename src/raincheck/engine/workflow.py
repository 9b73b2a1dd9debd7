"""What the engine asks of a workflow whose tasks are processes. `raincheck.workflows` has those that there are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol, TypeAlias

from raincheck.core.payload import Json
from raincheck.errors import RaincheckError

Kind: TypeAlias = Literal["success", "failure", "cancel"]

CancelReason: TypeAlias = Literal["already-completed", "not-cancellable", "no-cancel-transition"]


@dataclass(frozen=True, slots=True)
class Situation:
    """Where a process is, and what it knows."""

    state: str
    number: int
    since: datetime
    input: Mapping[str, Json]
    data: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Fired:
    """A transition that the workflow allows: where it leads, and what the process knows then."""

    action: str
    to: str
    data: Mapping[str, Json]
    kind: Kind | None = None
    """What the state that it leads to is the end of, if it is an end."""
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Available:
    """A transition out of the state that a process is in. `closed` says why it can't be taken now."""

    action: str
    to: str
    requires_reason: bool
    closed: str | None = None


class Closed(RaincheckError):
    """The workflow does not allow the transition. The message says why."""


class NotCancellable(RaincheckError):
    """The workflow does not let the process be cancelled. The message says why."""

    def __init__(self, reason: CancelReason, why: str) -> None:
        super().__init__(why)
        self.reason: CancelReason = reason


class Process(Protocol):
    """A workflow with states. Pure: it says what may become of a process, and others do it."""

    @property
    def initial(self) -> str:
        """The state that processes begin in."""
        ...

    def fire(
        self, situation: Situation, action: str, given: Mapping[str, Json] | None = None, reason: str | None = None
    ) -> Fired:
        """Take a transition.

        Raises:
            Closed: it is not there, or may not be taken now.
        """
        ...

    def cancel(self, situation: Situation, reason: str | None = None) -> Fired:
        """Take the transition that cancels the process.

        Raises:
            NotCancellable: there is none, or it may not be taken now.
        """
        ...

    def available(self, situation: Situation) -> Sequence[Available]:
        """The transitions out of the state."""
        ...
