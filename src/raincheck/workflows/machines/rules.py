"""The rules of a state machine: pure functions from an instance's snapshot to its possible transitions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from raincheck.core.payload import Json
from raincheck.engine.workflow import (
    AvailableTransition,
    InstanceSnapshot,
    NotCancellable,
    PlannedTransition,
    TransitionClosed,
)
from raincheck.errors import InvalidValue
from raincheck.workflows.machines.machine import Machine, Outcome, State, Transition

NO_OUTCOME = Outcome()


@dataclass(frozen=True, slots=True)
class MachineRules:
    """The transitions that a machine allows."""

    machine: Machine

    @property
    def initial(self) -> str:
        return self.machine.initial

    def fire(
        self,
        snapshot: InstanceSnapshot,
        action: str,
        data: Mapping[str, Json] | None = None,
        reason: str | None = None,
    ) -> PlannedTransition:
        return self.apply_transition(snapshot, self._find_transition(snapshot, action), data or {}, reason)

    def fire_automatic(
        self, snapshot: InstanceSnapshot, action: str, data: Mapping[str, Json], reason: str | None
    ) -> PlannedTransition:
        """Take a transition that no caller requested, so that it needs no reason.

        Raises:
            TransitionClosed: it does not exist, or may not be taken now.
        """
        return self.apply_transition(snapshot, self._find_transition(snapshot, action), data, reason, is_automatic=True)

    def cancel(self, snapshot: InstanceSnapshot, reason: str | None = None) -> PlannedTransition:
        cancel_states = {state.name for state in self.machine.states if state.kind == "cancel"}
        if not cancel_states:
            raise NotCancellable("not-cancellable", f"workflow {self.machine.name!r} has no state of kind cancel")
        name = snapshot.state
        transitions = [transition for transition in self.state(snapshot).transitions if transition.to in cancel_states]
        if not transitions:
            raise NotCancellable(
                "no-cancel-transition", f"no transition leads from state {name!r} to a state of kind cancel"
            )
        refusals: list[str] = []
        for transition in transitions:
            try:
                return self.apply_transition(snapshot, transition, {}, reason)
            except TransitionClosed as closed:
                refusals.append(f"{transition.action!r} is closed, since {closed}")
        raise NotCancellable("no-cancel-transition", f"in state {name!r}, {'; '.join(refusals)}")

    def available(self, snapshot: InstanceSnapshot) -> Sequence[AvailableTransition]:
        return [
            AvailableTransition(
                transition.action,
                transition.to,
                transition.requires_reason,
                self._reason_closed(transition, snapshot),
            )
            for transition in self.state(snapshot).transitions
        ]

    def pick_transition(self, snapshot: InstanceSnapshot, outcome: Outcome) -> PlannedTransition | None:
        """Return the first open transition that the outcome of the state's action picks; None if it picks none."""
        for transition in self._matching_transitions(snapshot, outcome):
            if self._reason_closed(transition, snapshot) is None:
                return self.apply_transition(snapshot, transition, {}, None, outcome, is_automatic=True)
        return None

    def state(self, snapshot: InstanceSnapshot) -> State:
        found = self.machine.by_name.get(snapshot.state)
        if found is None:
            raise InvalidValue(
                f"state {snapshot.state!r} no longer exists in version {self.machine.version!r} of workflow "
                f"{self.machine.name!r}: restore it, or cancel the instance"
            )
        return found

    def apply_transition(
        self,
        snapshot: InstanceSnapshot,
        transition: Transition,
        data: Mapping[str, Json],
        reason: str | None,
        outcome: Outcome = NO_OUTCOME,
        *,
        is_automatic: bool = False,
    ) -> PlannedTransition:
        """Take a transition, if it is open with this data.

        Raises:
            TransitionClosed: it is closed.
        """
        if transition.requires_reason and not is_automatic and not (reason or "").strip():
            raise TransitionClosed("it requires a reason: give one")
        snapshot = replace(snapshot, data={**snapshot.data, **data})
        closed = self._reason_closed(transition, snapshot)
        if closed is not None:
            raise TransitionClosed(closed)
        added: Mapping[str, Json] = {}
        if transition.update_data is not None:
            try:
                added = transition.update_data(snapshot, outcome)
            except Exception as error:
                raise TransitionClosed(f"the data that it adds can't be evaluated: {error}") from error
        kind = self.machine.by_name[transition.to].kind
        return PlannedTransition(transition.action, transition.to, {**snapshot.data, **added}, kind, reason)

    def _matching_transitions(self, snapshot: InstanceSnapshot, outcome: Outcome) -> Iterator[Transition]:
        for transition in self.state(snapshot).transitions:
            try:
                is_picked = transition.on is not None and transition.on(snapshot, outcome)
            except Exception as error:
                raise TransitionClosed(f"the `on` of {transition.action!r} can't be evaluated: {error}") from error
            if is_picked:
                yield transition

    def _find_transition(self, snapshot: InstanceSnapshot, action: str) -> Transition:
        state = self.state(snapshot)
        found = state.transition(action)
        if found is None:
            actions = ", ".join(repr(transition.action) for transition in state.transitions) or "none"
            raise TransitionClosed(f"this state has no transition of that name: the transitions are {actions}")
        return found

    def _reason_closed(self, transition: Transition, snapshot: InstanceSnapshot) -> str | None:
        """Return why a transition is closed, or None if it is open. In doubt it is closed."""
        guard = transition.guard
        if guard is None:
            return None
        if isinstance(guard, str):
            name, guard = guard, self.machine.guards.get(guard)
            if guard is None:
                return f"its guard {name!r} is missing"
        try:
            is_open = bool(guard(snapshot))
        except Exception as error:  # noqa: BLE001 - any error closes the transition
            return f"its guard failed: {_describe_error(error)}"
        if is_open:
            return None
        return f"its guard is false{'' if transition.label is None else f': {transition.label}'}"


def _describe_error(error: Exception) -> str:
    """Return an expression's own message, or another error with its type: a KeyError's message is only a name."""
    return str(error) if isinstance(error, InvalidValue) else f"{type(error).__name__}: {error}"
