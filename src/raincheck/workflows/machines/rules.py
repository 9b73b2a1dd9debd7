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
        situation: InstanceSnapshot,
        action: str,
        given: Mapping[str, Json] | None = None,
        reason: str | None = None,
    ) -> PlannedTransition:
        return self.apply_transition(situation, self._find_transition(situation, action), given or {}, reason)

    def fire_automatic(
        self, situation: InstanceSnapshot, action: str, given: Mapping[str, Json], reason: str | None
    ) -> PlannedTransition:
        """Take a transition that no caller requested, so that it needs no reason.

        Raises:
            TransitionClosed: it does not exist, or may not be taken now.
        """
        return self.apply_transition(
            situation, self._find_transition(situation, action), given, reason, is_automatic=True
        )

    def cancel(self, situation: InstanceSnapshot, reason: str | None = None) -> PlannedTransition:
        ends = {state.name for state in self.machine.states if state.kind == "cancel"}
        if not ends:
            raise NotCancellable("not-cancellable", f"workflow {self.machine.name!r} has no state for that")
        here = situation.state
        ways = [one for one in self.state(situation).transitions if one.to in ends]
        if not ways:
            raise NotCancellable("no-cancel-transition", f"nothing leads from state {here!r} to a state of kind cancel")
        refusals: list[str] = []
        for one in ways:
            try:
                return self.apply_transition(situation, one, {}, reason)
            except TransitionClosed as closed:
                refusals.append(f"{one.action!r} is closed, since {closed}")
        raise NotCancellable("no-cancel-transition", f"in state {here!r}, {'; '.join(refusals)}")

    def available(self, situation: InstanceSnapshot) -> Sequence[AvailableTransition]:
        return [
            AvailableTransition(one.action, one.to, one.requires_reason, self._why_closed(one, situation))
            for one in self.state(situation).transitions
        ]

    def pick_transition(self, situation: InstanceSnapshot, outcome: Outcome) -> PlannedTransition | None:
        """Return the first open transition that the outcome of the state's action picks; None if it picks none."""
        for one in self._matching_transitions(situation, outcome):
            if self._why_closed(one, situation) is None:
                return self.apply_transition(situation, one, {}, None, outcome, is_automatic=True)
        return None

    def state(self, situation: InstanceSnapshot) -> State:
        found = self.machine.by_name.get(situation.state)
        if found is None:
            raise InvalidValue(
                f"state {situation.state!r} is not in version {self.machine.version!r} of workflow "
                f"{self.machine.name!r} any more: bring it back, or cancel the process"
            )
        return found

    def apply_transition(
        self,
        situation: InstanceSnapshot,
        transition: Transition,
        given: Mapping[str, Json],
        reason: str | None,
        outcome: Outcome = NO_OUTCOME,
        *,
        is_automatic: bool = False,
    ) -> PlannedTransition:
        """Take a transition, if it is open with the given data.

        Raises:
            TransitionClosed: it is closed.
        """
        if transition.requires_reason and not is_automatic and not (reason or "").strip():
            raise TransitionClosed("it requires a reason: give one")
        situation = replace(situation, data={**situation.data, **given})
        why = self._why_closed(transition, situation)
        if why is not None:
            raise TransitionClosed(why)
        added: Mapping[str, Json] = {}
        if transition.update_data is not None:
            try:
                added = transition.update_data(situation, outcome)
            except Exception as error:
                raise TransitionClosed(f"what it would add can't be had: {error}") from error
        kind = self.machine.by_name[transition.to].kind
        return PlannedTransition(transition.action, transition.to, {**situation.data, **added}, kind, reason)

    def _matching_transitions(self, situation: InstanceSnapshot, outcome: Outcome) -> Iterator[Transition]:
        for one in self.state(situation).transitions:
            try:
                is_picked = one.on is not None and one.on(situation, outcome)
            except Exception as error:
                raise TransitionClosed(f"whether {one.action!r} is to be taken can't be worked out: {error}") from error
            if is_picked:
                yield one

    def _find_transition(self, situation: InstanceSnapshot, action: str) -> Transition:
        state = self.state(situation)
        found = state.transition(action)
        if found is None:
            ways = ", ".join(repr(one.action) for one in state.transitions) or "nothing"
            raise TransitionClosed(f"nothing of that name leads out of this state: what does is {ways}")
        return found

    def _why_closed(self, transition: Transition, situation: InstanceSnapshot) -> str | None:
        """Return why a transition is closed, or None if it is open. In doubt it is closed."""
        guard = transition.guard
        if guard is None:
            return None
        if isinstance(guard, str):
            name, guard = guard, self.machine.guards.get(guard)
            if guard is None:
                return f"its guard {name!r} is missing"
        try:
            is_open = bool(guard(situation))
        except Exception as error:  # noqa: BLE001 - any error closes the transition
            return f"its guard failed: {_describe_error(error)}"
        if is_open:
            return None
        return f"its guard says no{'' if transition.label is None else f': {transition.label}'}"


def _describe_error(error: Exception) -> str:
    """Return an expression's own message, or another error with its type: a KeyError's message is only a name."""
    return str(error) if isinstance(error, InvalidValue) else f"{type(error).__name__}: {error}"
