"""What files may say of state machines."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from raincheck.workflows.action_model import ActionModel
from raincheck.workflows.common_model import Duration, Model, Name, Value, WorkflowModel, named


class TransitionModel(Model):
    """A way out of a state."""

    to: Name
    guard: str | None = None
    """An expression over `input`, `data` and `state`. The transition is closed where it is false, or can't be had."""
    requires_reason: bool = False
    on: str | None = None
    """An expression that picks the transition by what came of the state's action: `result`, `error`, `failed`."""
    set: Mapping[str, Value] = {}
    """What it adds to the data of the process."""


class StateTimeoutModel(Model):
    """Takes a transition when the process has been in the state for so long."""

    after: Duration
    take: Name


class StateModel(Model):
    """A state."""

    initial: bool = False
    """Where processes begin: the first state, unless another says so."""
    kind: Literal["success", "failure", "cancel"] | None = None
    """What kind of end it is, if it is one."""
    action: ActionModel | None = None
    """What is done on entry."""
    timeout: StateTimeoutModel | None = None
    transitions: Annotated[Mapping[str, TransitionModel], AfterValidator(named)] = {}


class MachineModel(WorkflowModel):
    """A state machine."""

    states: Annotated[Mapping[str, StateModel], AfterValidator(named), Field(min_length=1)]
    output: Value = None
    """What a process that ends in success returns: its data, unless this says otherwise."""
