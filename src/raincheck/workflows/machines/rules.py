"""The rules of a state machine: pure, from where a process is to where it may go."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from raincheck.core.payload import Json
from raincheck.engine.workflow import Available, Closed, Fired, NotCancellable, Situation
from raincheck.errors import InvalidValue
from raincheck.workflows.machines.machine import Machine, Outcome, State, Transition

NOTHING = Outcome()


@dataclass(frozen=True, slots=True)
class Rules:
    """What a machine allows."""

    machine: Machine

    @property
    def initial(self) -> str:
        return self.machine.initial

    def fire(
        self, situation: Situation, action: str, given: Mapping[str, Json] | None = None, reason: str | None = None
    ) -> Fired:
        return self.take(situation, self._way(situation, action), given or {}, reason)

    def fire_by_itself(self, situation: Situation, action: str, given: Mapping[str, Json], reason: str | None) -> Fired:
        """Take a transition that nobody asked for, so that nobody has to say why.

        Raises:
            Closed: it is not there, or may not be taken now.
        """
        return self.take(situation, self._way(situation, action), given, reason, by_itself=True)

    def cancel(self, situation: Situation, reason: str | None = None) -> Fired:
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
                return self.take(situation, one, {}, reason)
            except Closed as closed:
                refusals.append(f"{one.action!r} is closed, since {closed}")
        raise NotCancellable("no-cancel-transition", f"in state {here!r}, {'; '.join(refusals)}")

    def available(self, situation: Situation) -> Sequence[Available]:
        return [
            Available(one.action, one.to, one.requires_reason, self._why_closed(one, situation))
            for one in self.state(situation).transitions
        ]

    def picked(self, situation: Situation, outcome: Outcome) -> Fired | None:
        """The first open transition that the outcome of the state's action picks."""
        for one in self._picked(situation, outcome):
            if self._why_closed(one, situation) is None:
                return self.take(situation, one, {}, None, outcome, by_itself=True)
        return None

    def state(self, situation: Situation) -> State:
        found = self.machine.by_name.get(situation.state)
        if found is None:
            raise InvalidValue(
                f"state {situation.state!r} is not in version {self.machine.version!r} of workflow "
                f"{self.machine.name!r} any more: bring it back, or cancel the process"
            )
        return found

    def take(
        self,
        situation: Situation,
        transition: Transition,
        given: Mapping[str, Json],
        reason: str | None,
        outcome: Outcome = NOTHING,
        *,
        by_itself: bool = False,
    ) -> Fired:
        """Take a way out, if it is open with what is given.

        Raises:
            Closed: it is not.
        """
        if transition.requires_reason and not by_itself and not (reason or "").strip():
            raise Closed("it requires a reason: give one")
        situation = replace(situation, data={**situation.data, **given})
        why = self._why_closed(transition, situation)
        if why is not None:
            raise Closed(why)
        added: Mapping[str, Json] = {}
        if transition.adds is not None:
            try:
                added = transition.adds(situation, outcome)
            except Exception as error:
                raise Closed(f"what it would add can't be had: {error}") from error
        kind = self.machine.by_name[transition.to].kind
        return Fired(transition.action, transition.to, {**situation.data, **added}, kind, reason)

    def _picked(self, situation: Situation, outcome: Outcome) -> Iterator[Transition]:
        for one in self.state(situation).transitions:
            try:
                is_picked = one.on is not None and one.on(situation, outcome)
            except Exception as error:
                raise Closed(f"whether {one.action!r} is to be taken can't be worked out: {error}") from error
            if is_picked:
                yield one

    def _way(self, situation: Situation, action: str) -> Transition:
        state = self.state(situation)
        found = state.transition(action)
        if found is None:
            ways = ", ".join(repr(one.action) for one in state.transitions) or "nothing"
            raise Closed(f"nothing of that name leads out of this state: what does is {ways}")
        return found

    def _why_closed(self, transition: Transition, situation: Situation) -> str | None:
        """What is wrong, or None. In doubt it is closed."""
        guard = transition.guard
        if guard is None:
            return None
        if isinstance(guard, str):
            name, guard = guard, self.machine.guards.get(guard)
            if guard is None:
                return f"its guard {name!r} is missing"
        try:
            is_open = bool(guard(situation))
        except Exception as error:  # noqa: BLE001 - whatever it is, the way is closed
            return f"its guard failed: {_told(error)}"
        if is_open:
            return None
        return f"its guard says no{'' if transition.words is None else f': {transition.words}'}"


def _told(error: Exception) -> str:
    """What an expression says of itself, or another error with its kind: a KeyError alone is but a name."""
    return str(error) if isinstance(error, InvalidValue) else f"{type(error).__name__}: {error}"
