"""Random small state machines do what a few lines of plain Python say that they mean."""

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
class Way:
    """A transition, as the model knows it. `guard` is open, shut, broken, missing, or a key that the data must have."""

    action: str
    to: int
    guard: str
    requires_reason: bool


@dataclass(frozen=True)
class Drawn:
    """A machine: the ways out of each state that is no end, and the kinds of the ends after them."""

    ways: tuple[tuple[Way, ...], ...]
    kinds: tuple[str, ...]

    def name(self, number: int) -> str:
        return f"s{number}"


@dataclass(frozen=True)
class Try:
    """Somebody tries a transition, or to cancel."""

    action: str
    reason: str | None
    data: dict[str, int]


@st.composite
def machines(draw: st.DrawFn) -> Drawn:
    live = draw(st.integers(1, 3))
    kinds = tuple(draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3)))
    guards = st.sampled_from(["open", "open", "open", "shut", "broken", "missing", "key"])
    ways: list[tuple[Way, ...]] = []
    for number in range(live):
        actions = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True))
        ways.append(
            tuple(
                Way(action, draw(st.integers(0, live + len(kinds) - 1)), draw(guards), draw(st.booleans()))
                for action in actions
            )
        )
        # Every state can be reached, as a definition must have it.
        if number + 1 < live:
            ways[-1] += (Way("next", number + 1, "open", requires_reason=False),)
    last = tuple(Way(f"end{one}", live + one, "open", requires_reason=False) for one in range(len(kinds)))
    return Drawn((*ways[:-1], ways[-1] + last), kinds)


tries = st.lists(
    st.builds(
        Try,
        st.sampled_from(["a", "b", "c", "d", "next", "end0", "end1", "end2", "cancel"]),
        st.sampled_from([None, "", "because"]),
        st.sampled_from([{}, {}, {"key": 1}, {"other": 2}]),
    ),
    max_size=8,
)


@dataclass
class Model:
    """What it means."""

    drawn: Drawn
    state: int = 0
    data: dict[str, int] = field(default_factory=dict[str, int])
    moves: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])

    @property
    def kind(self) -> str | None:
        live = len(self.drawn.ways)
        return None if self.state < live else self.drawn.kinds[self.state - live]

    def is_open(self, way: Way, one: Try, data: dict[str, int]) -> bool:
        if way.requires_reason and not one.reason:
            return False
        return way.guard == "open" or (way.guard == "key" and "key" in data)

    def take(self, one: Try) -> str:
        """What comes of it: taken, or why not."""
        if self.kind is not None:
            return "ended"
        if one.action == "cancel":
            return self._cancel(one)
        for way in self.drawn.ways[self.state]:
            if way.action == one.action and self.is_open(way, one, {**self.data, **one.data}):
                self._go(way, one.data)
                return "taken"
        return "refused"

    def _cancel(self, one: Try) -> str:
        live, kinds = len(self.drawn.ways), self.drawn.kinds
        if "cancel" not in kinds:
            return "not-cancellable"
        for way in self.drawn.ways[self.state]:
            leads_there = way.to >= live and kinds[way.to - live] == "cancel"
            if leads_there and self.is_open(way, one, self.data):
                self._go(way, {})
                return "taken"
        return "no-cancel-transition"

    def _go(self, way: Way, data: dict[str, int]) -> None:
        self.data |= data
        self.state = way.to
        self.moves.append((way.action, way.to))


def machine_of(drawn: Drawn) -> Machine:
    def broken(_: InstanceSnapshot) -> bool:
        raise RuntimeError("broken")

    guards: dict[str, Guard] = {
        "shut": lambda _: False,
        "broken": broken,
        "key": lambda situation: "key" in situation.data,
    }
    live = len(drawn.ways)
    states = [
        State(
            drawn.name(number),
            [
                Transition(
                    way.action,
                    drawn.name(way.to),
                    guard=None if way.guard == "open" else way.guard,
                    requires_reason=way.requires_reason,
                )
                for way in ways
            ],
        )
        for number, ways in enumerate(drawn.ways)
    ]
    ends = [State(drawn.name(live + number), kind=kind) for number, kind in enumerate(drawn.kinds)]  # type: ignore[arg-type] # one of the three
    return Machine("drawn", [*states, *ends], guards=guards)


async def attempt(engine: Engine, task_id: str, one: Try) -> str:
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


async def play(drawn: Drawn, wanted: list[Try]) -> None:
    toolbox, model = Toolbox(), Model(drawn)
    toolbox.add(machine_of(drawn).tool())
    async with open_store("memory:") as store:
        async with Engine(store, toolbox, works=False) as engine:
            task = await engine.submit("drawn")
            for one in wanted:
                if model.kind is None:
                    assert await attempt(engine, task.id, one) == model.take(one), one
            seen = await engine.task(task.id)
            assert seen.state is not None
            assert (seen.state.name, seen.state.number) == (drawn.name(model.state), len(model.moves))
        if model.kind is not None:
            async with Engine(store, toolbox) as engine:
                view = await engine.wait(task.id)
                assert view.task.phase is ENDS[model.kind]
                for one in wanted:
                    assert await attempt(engine, task.id, one) == "ended" == model.take(one) or one.action != "cancel"


@settings(max_examples=60, deadline=None)
@given(machines(), tries)
def test_a_process_goes_where_the_model_goes_and_nowhere_else(drawn: Drawn, wanted: list[Try]) -> None:
    asyncio.run(play(drawn, wanted))
