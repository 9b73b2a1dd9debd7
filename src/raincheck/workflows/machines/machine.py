"""State machines: what a workflow with states is made of, as data.

    review = Machine(
        "review",
        states=[
            State("draft", transitions=[Transition("submit", to="review", guard=has_text)]),
            State("review", timeout=Timeout(3_600, "expire"), transitions=[
                Transition("approve", to="done"),
                Transition("reject", to="draft", requires_reason=True),
                Transition("expire", to="expired"),
                Transition("withdraw", to="withdrawn"),
            ]),
            State("done", kind="success"), State("expired", kind="failure"), State("withdrawn", kind="cancel"),
        ],
    )

The first state is the one that processes begin in. A process that enters a terminal state ends: completed, failed or
cancelled, as the state's kind says.

What is wrong with a state machine, all of it at once.
"""

import hashlib
import inspect
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from raincheck.core.payload import Json
from raincheck.engine.tool import TaskTool
from raincheck.engine.workflow import Kind, Situation
from raincheck.errors import ConfigurationError


def faults_of(states: "Sequence[State]", *, is_whole: bool = True) -> Iterator[tuple[str, str]]:
    """Where something is wrong, and what. If they are not all that there is, nobody can tell where processes get."""
    if isinstance(states, Mapping) or not all(hasattr(one, "transitions") for one in states):
        yield "states", "it is a list of State"
        return
    if not states:
        yield "states", "there is none: name at least a first and a last one"
        return
    names = Counter(state.name for state in states)
    for name, count in names.items():
        if count > 1:
            yield f"states.{name}", f"{count} states have this name: give each its own"
    if states[0].kind is not None:
        yield f"states.{states[0].name}", "processes begin here, and it is an end"
    if is_whole and all(state.kind is None for state in states):
        yield "states", "none is an end: give at least one a kind (success, failure or cancel)"
    for state in states:
        yield from _faults_of_state(state, set(names))
    if is_whole:
        yield from _unreachable(states)


def _faults_of_state(state: "State", names: set[str]) -> Iterator[tuple[str, str]]:
    where = f"states.{state.name}"
    if state.kind not in (None, "success", "failure", "cancel"):
        yield where, f"kind is success, failure or cancel, not {state.kind!r}"
    if state.kind is not None and (state.transitions or state.action or state.timeout):
        yield where, "it is an end: nothing is done there, and nothing leads out of it"
    if state.action is not None and not callable(state.action):
        yield where, f"its action is a function, not {state.action!r}"
        return
    if state.action is not None and takes_task(state.action) and not inspect.iscoroutinefunction(state.action):
        yield where, "an action that takes the task is a coroutine: write `async def`"
    if state.action is not None and not takes_situation(state.action):
        yield where, "an action takes the situation, and may take the task: write `def action(situation)`"
    if state.kind is None and not state.transitions:
        yield where, "nothing leads out of it: add a transition, or give it a kind"
    actions = Counter(one.action for one in state.transitions)
    for one in state.transitions:
        if actions[one.action] > 1:
            yield f"{where}.transitions.{one.action}", "several ways out have this name: give each its own"
        if one.to not in names:
            what = f"leads to {one.to!r}, which is no state: there is {_list(names)}"
            yield f"{where}.transitions.{one.action}", what
        if one.on is not None and state.action is None:
            yield f"{where}.transitions.{one.action}", "is picked by the outcome of an action, and the state has none"
    leads_nowhere = f"which does not lead out of this state: what does is {_list(actions)}"
    if state.timeout is not None:
        if state.timeout.action not in actions:
            yield f"{where}.timeout", f"takes {state.timeout.action!r}, {leads_nowhere}"
        if not state.timeout.after > 0:
            yield f"{where}.timeout", f"is after a number of seconds above 0, not {state.timeout.after!r}"
    if state.on_error is not None and state.on_error not in actions:
        yield f"{where}.on_error", f"takes {state.on_error!r}, {leads_nowhere}"


def _unreachable(states: "Sequence[State]") -> Iterator[tuple[str, str]]:
    reached = {states[0].name}
    ahead = [states[0].name]
    ways = {state.name: [one.to for one in state.transitions] for state in states}
    while ahead:
        for name in ways.get(ahead.pop(), ()):
            if name not in reached:
                reached.add(name)
                ahead.append(name)
    for state in states:
        if state.name not in reached:
            yield f"states.{state.name}", "no process ever gets there: lead a transition to it, or leave it out"


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def takes_situation(action: Callable[..., object]) -> bool:
    """Whether an action can be called with where the process is."""
    given = {"task": None} if takes_task(action) else {}
    try:
        inspect.signature(action).bind(None, **given)
    except TypeError:
        return False
    return True


def takes_task(action: Callable[..., object]) -> bool:
    """Whether an action wants the context of its task."""
    return "task" in inspect.signature(action).parameters


Guard: TypeAlias = Callable[[Situation], object]
"""Whether a transition is open: anything that is true. What it raises closes it."""

Action: TypeAlias = Callable[..., Awaitable[Any] | Any]
"""What is done on entry: called with the situation, and with the task's context if it has a parameter `task`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a state's action: its result, or how it failed."""

    result: Json = None
    error: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True)
class Next:
    """What an action may return: the transition to take (none: wait for one), and what to add to the data."""

    action: str | None = None
    data: Mapping[str, Json] = field(default_factory=dict[str, Json])


@dataclass(frozen=True, slots=True)
class Transition:
    """A way out of a state."""

    action: str
    to: str
    guard: Guard | str | None = None
    """Fails closed: one that raises, or whose name the machine has no guard of, refuses."""
    requires_reason: bool = False
    on: Callable[[Situation, Outcome], object] | None = None
    """Whether the outcome of the state's action picks this transition. The first that is picked and open is taken."""
    adds: Callable[[Situation, Outcome], Mapping[str, Json]] | None = None
    """What it adds to the data of the process."""
    words: str | None = None
    """The guard as it is shown to people."""


@dataclass(frozen=True, slots=True)
class Timeout:
    """Take a transition when the process has been in the state for so many seconds."""

    after: float
    action: str


@dataclass(frozen=True, slots=True)
class State:
    """A place in the workflow."""

    name: str
    transitions: Sequence[Transition] = ()
    kind: Kind | None = None
    """What kind of end it is, if it is one."""
    action: Action | None = None
    on_error: str | None = None
    """The transition to take if the action fails for good. Without, the task fails."""
    timeout: Timeout | None = None
    words: str | None = None
    """The action as it is shown to people."""

    def transition(self, action: str) -> Transition | None:
        return next((one for one in self.transitions if one.action == action), None)


# Without slots, for what is derived from it.
@dataclass(frozen=True, eq=False)
class Machine:
    """A workflow with states. A process of it is a task of the tool with its name."""

    name: str
    states: Sequence[State]
    version: str = ""
    """Processes go on under the version they began with. By default, it tells one set of states from another."""
    description: str | None = None
    input_schema: Mapping[str, Json] = field(default_factory=lambda: dict[str, Json](_ANY_INPUT))
    guards: Mapping[str, Guard] = field(default_factory=dict[str, Guard])
    """Those that transitions name."""
    subject: Callable[[Mapping[str, Json]], str | None] | None = None
    """What a process that begins with these arguments is about."""
    result: Callable[[Situation], Json] | None = None
    """What a process that ends in success returns: its data, unless this says otherwise."""
    timeout: float | None = None
    """Seconds for the whole."""
    definition: bytes | None = None
    """What it is made of, where that is a file."""

    def __post_init__(self) -> None:
        faults = [f"{where}: {what}" for where, what in faults_of(self.states)]
        if faults:
            raise ConfigurationError("\n".join([f"workflow {self.name!r} can't work like that:", *faults]))
        if not self.version:
            object.__setattr__(self, "version", self._digest())

    @property
    def initial(self) -> str:
        """The state that processes begin in."""
        return self.states[0].name

    @cached_property
    def by_name(self) -> Mapping[str, State]:
        return {state.name: state for state in self.states}

    def tool(self) -> TaskTool:
        """What runs its processes."""
        # Imported with the package: what runs a machine knows what one is, and not the other way round.
        from raincheck.workflows.machines.run import machine_tool

        return machine_tool(self)

    def _digest(self) -> str:
        """Of the states and the ways between them: code can't be told apart."""
        shape = [
            [
                state.name,
                state.kind,
                [[one.action, one.to, one.requires_reason, one.words] for one in state.transitions],
            ]
            for state in self.states
        ]
        return hashlib.sha256(json.dumps(shape).encode()).hexdigest()[:12]


_ANY_INPUT: Mapping[str, Json] = {"type": "object"}
