"""Random small state machines behave as a model in plain Python."""

import asyncio
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from raincheck import Engine, Toolbox, open_store
from raincheck.core.lifecycle import Phase
from raincheck.engine.workflow import InstanceSnapshot
from raincheck.errors import CancelRefused, IllegalTransition, TransitionRefused
from raincheck.workflows import Machine, State, Transition
from raincheck.workflows.machines.machine import Guard

KINDS = ("success", "failure", "cancel")
ENDS = {"success": Phase.COMPLETED, "failure": Phase.FAILED, "cancel": Phase.CANCELLED}


@dataclass(frozen=True)
class ModelTransition:
    """A transition of the model. `guard` is open, shut, broken, missing, or a key that the data must have."""

    action: str
    to: int
    guard: str
    requires_reason: bool


@dataclass(frozen=True)
class DrawnMachine:
    """A machine: the transitions of each live state, and the kinds of the terminal states after them."""

    transitions: tuple[tuple[ModelTransition, ...], ...]
    kinds: tuple[str, ...]

    def name(self, number: int) -> str:
        return f"s{number}"


@dataclass(frozen=True)
class Request:
    """A request to take a transition or to cancel."""

    action: str
    reason: str | None
    data: dict[str, int]


@st.composite
def machines(draw: st.DrawFn) -> DrawnMachine:
    live = draw(st.integers(1, 3))
    kinds = tuple(draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3)))
    guards = st.sampled_from(["open", "open", "open", "shut", "broken", "missing", "key"])
    transitions: list[tuple[ModelTransition, ...]] = []
    for number in range(live):
        actions = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True))
        transitions.append(
            tuple(
                ModelTransition(action, draw(st.integers(0, live + len(kinds) - 1)), draw(guards), draw(st.booleans()))
                for action in actions
            )
        )
        # Every state can be reached, as a definition must have it.
        if number + 1 < live:
            transitions[-1] += (ModelTransition("next", number + 1, "open", requires_reason=False),)
    last = tuple(ModelTransition(f"end{one}", live + one, "open", requires_reason=False) for one in range(len(kinds)))
    return DrawnMachine((*transitions[:-1], transitions[-1] + last), kinds)


tries = st.lists(
    st.builds(
        Request,
        st.sampled_from(["a", "b", "c", "d", "next", "end0", "end1", "end2", "cancel"]),
        st.sampled_from([None, "", "because"]),
        st.sampled_from([{}, {}, {"key": 1}, {"other": 2}]),
    ),
    max_size=8,
)


@dataclass
class Model:
    """The expected behaviour of a machine."""

    machine: DrawnMachine
    state: int = 0
    data: dict[str, int] = field(default_factory=dict[str, int])
    moves: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])

    @property
    def kind(self) -> str | None:
        live = len(self.machine.transitions)
        return None if self.state < live else self.machine.kinds[self.state - live]

    def is_open(self, transition: ModelTransition, one: Request, data: dict[str, int]) -> bool:
        if transition.requires_reason and not one.reason:
            return False
        return transition.guard == "open" or (transition.guard == "key" and "key" in data)

    def take(self, one: Request) -> str:
        """Return `taken`, or why the request is refused."""
        if self.kind is not None:
            return "ended"
        if one.action == "cancel":
            return self._cancel(one)
        for transition in self.machine.transitions[self.state]:
            if transition.action == one.action and self.is_open(transition, one, {**self.data, **one.data}):
                self._go(transition, one.data)
                return "taken"
        return "refused"

    def _cancel(self, one: Request) -> str:
        live, kinds = len(self.machine.transitions), self.machine.kinds
        if "cancel" not in kinds:
            return "not-cancellable"
        for transition in self.machine.transitions[self.state]:
            leads_there = transition.to >= live and kinds[transition.to - live] == "cancel"
            if leads_there and self.is_open(transition, one, self.data):
                self._go(transition, {})
                return "taken"
        return "no-cancel-transition"

    def _go(self, transition: ModelTransition, data: dict[str, int]) -> None:
        self.data |= data
        self.state = transition.to
        self.moves.append((transition.action, transition.to))


def machine_of(machine: DrawnMachine) -> Machine:
    def broken(_: InstanceSnapshot) -> bool:
        raise RuntimeError("broken")

    guards: dict[str, Guard] = {
        "shut": lambda _: False,
        "broken": broken,
        "key": lambda snapshot: "key" in snapshot.data,
    }
    live = len(machine.transitions)
    states = [
        State(
            machine.name(number),
            [
                Transition(
                    transition.action,
                    machine.name(transition.to),
                    guard=None if transition.guard == "open" else transition.guard,
                    requires_reason=transition.requires_reason,
                )
                for transition in transitions
            ],
        )
        for number, transitions in enumerate(machine.transitions)
    ]
    ends = [State(machine.name(live + number), kind=kind) for number, kind in enumerate(machine.kinds)]  # type: ignore[arg-type] # one of the three
    return Machine("machine", [*states, *ends], guards=guards)


async def attempt(engine: Engine, task_id: str, one: Request) -> str:
    try:
        if one.action == "cancel":
            await engine.cancel(task_id, reason=one.reason)
        else:
            await engine.instances.transition(task_id, one.action, reason=one.reason, data=one.data)
    except TransitionRefused:
        return "refused"
    except CancelRefused as refused:
        return "ended" if refused.reason == "already-completed" else refused.reason
    except IllegalTransition:
        return "ended"
    return "taken"


async def play(machine: DrawnMachine, wanted: list[Request]) -> None:
    toolbox, model = Toolbox(), Model(machine)
    toolbox.add(machine_of(machine).tool())
    async with open_store("memory:") as store:
        async with Engine(store, toolbox, works=False) as engine:
            task = await engine.submit("machine")
            for one in wanted:
                if model.kind is None:
                    assert await attempt(engine, task.id, one) == model.take(one), one
            seen = await engine.task(task.id)
            assert seen.state is not None
            assert (seen.state.name, seen.state.number) == (machine.name(model.state), len(model.moves))
        if model.kind is not None:
            async with Engine(store, toolbox) as engine:
                view = await engine.wait(task.id)
                assert view.task.phase is ENDS[model.kind]
                for one in wanted:
                    assert await attempt(engine, task.id, one) == "ended" == model.take(one) or one.action != "cancel"


@settings(max_examples=60, deadline=None)
@given(machines(), tries)
def test_an_instance_takes_the_same_transitions_as_the_model(machine: DrawnMachine, wanted: list[Request]) -> None:
    asyncio.run(play(machine, wanted))
