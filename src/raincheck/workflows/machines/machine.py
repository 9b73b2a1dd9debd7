"""State machines as data: the states, transitions and timeouts of a workflow.

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

Instances start in the first state. An instance that enters a terminal state ends: completed, failed or cancelled, as
the state's kind declares.

A machine is checked when it is created. `check_states` reports all of its errors at once.
"""

import hashlib
import inspect
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from raincheck.core.values import Json
from raincheck.engine.tool import TaskTool
from raincheck.engine.workflow import EndKind, InstanceSnapshot
from raincheck.errors import ConfigurationError


def check_states(states: "Sequence[State]", *, is_complete: bool = True) -> Iterator[tuple[str, str]]:
    """Yield the location and message of each error. Reachability is only checked if `states` is complete."""
    if isinstance(states, Mapping) or not all(hasattr(state, "transitions") for state in states):
        yield "states", "it must be a list of State"
        return
    if not states:
        yield "states", "it is empty: add at least an initial and a terminal state"
        return
    names = Counter(state.name for state in states)
    for name, count in names.items():
        if count > 1:
            yield f"states.{name}", f"{count} states have this name: give each its own name"
    if states[0].kind is not None:
        yield f"states.{states[0].name}", "it is the initial state, so it can't be terminal: remove its kind"
    if is_complete and all(state.kind is None for state in states):
        yield "states", "no state is terminal: give at least one a kind (success, failure or cancel)"
    for state in states:
        yield from _check_state(state, set(names))
    if is_complete:
        yield from _unreachable(states)


def _check_state(state: "State", names: set[str]) -> Iterator[tuple[str, str]]:
    where = f"states.{state.name}"
    if state.kind not in (None, "success", "failure", "cancel"):
        yield where, f"its kind must be success, failure or cancel, not {state.kind!r}"
    if state.kind is not None and (state.transitions or state.action or state.timeout):
        yield where, "it is terminal, so it can't have an action, a timeout or transitions: remove them, or its kind"
    if state.action is not None and not callable(state.action):
        yield where, f"its action must be a function, not {state.action!r}"
        return
    if state.action is not None and takes_task(state.action) and not inspect.iscoroutinefunction(state.action):
        yield where, "an action that takes the task must be a coroutine function: write `async def`"
    if state.action is not None and not takes_snapshot(state.action):
        yield where, "an action takes the instance's snapshot, and may take the task: write `def action(snapshot)`"
    if state.kind is None and not state.transitions:
        yield where, "it has no transitions: add one, or give it a kind"
    actions = Counter(transition.action for transition in state.transitions)
    for transition in state.transitions:
        route = f"{where}.transitions.{transition.action}"
        if actions[transition.action] > 1:
            yield route, "several transitions have this name: give each its own name"
        if transition.to not in names:
            yield route, f"it leads to {transition.to!r}, which is not a state: the states are {_list(names)}"
        if transition.on is not None and state.action is None:
            yield route, "it depends on the outcome of an action, but the state has none: add one, or remove `on`"
    not_a_transition = f"which is not a transition of this state: the transitions are {_list(actions)}"
    if state.timeout is not None:
        if state.timeout.action not in actions:
            yield f"{where}.timeout", f"it takes {state.timeout.action!r}, {not_a_transition}"
        if not state.timeout.after > 0:
            yield f"{where}.timeout", f"it must be after a number of seconds above 0, not {state.timeout.after!r}"
    if state.on_error is not None and state.on_error not in actions:
        yield f"{where}.on_error", f"it takes {state.on_error!r}, {not_a_transition}"


def _unreachable(states: "Sequence[State]") -> Iterator[tuple[str, str]]:
    reached = {states[0].name}
    pending = [states[0].name]
    targets = {state.name: [transition.to for transition in state.transitions] for state in states}
    while pending:
        for name in targets.get(pending.pop(), ()):
            if name not in reached:
                reached.add(name)
                pending.append(name)
    for state in states:
        if state.name not in reached:
            yield f"states.{state.name}", "no transition leads to it: add one, or remove the state"


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def takes_snapshot(action: Callable[..., object]) -> bool:
    """Return whether an action can be called with the snapshot of an instance."""
    keywords = {"task": None} if takes_task(action) else {}
    try:
        inspect.signature(action).bind(None, **keywords)
    except TypeError:
        return False
    return True


def takes_task(action: Callable[..., object]) -> bool:
    """Return whether an action takes the context of its task."""
    return "task" in inspect.signature(action).parameters


Guard: TypeAlias = Callable[[InstanceSnapshot], object]
"""Opens a transition if it returns any true value. An exception closes the transition."""

StateAction: TypeAlias = Callable[..., Awaitable[Any] | Any]
"""Runs on entry. It is called with the snapshot, and with the task's context if it has a parameter `task`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a state's action: its result or its error."""

    result: Json = None
    error: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True)
class Next:
    """A return value of an action: the transition to take (None: wait for one), and the data to add."""

    action: str | None = None
    data: Mapping[str, Json] = field(default_factory=dict[str, Json])


@dataclass(frozen=True, slots=True)
class Transition:
    """A transition out of a state."""

    action: str
    to: str
    guard: Guard | str | None = None
    """Fails closed: a guard that raises, or a name without a guard in the machine, closes the transition."""
    requires_reason: bool = False
    on: Callable[[InstanceSnapshot, Outcome], object] | None = None
    """Whether the outcome of the state's action picks this transition. The first picked and open one is taken."""
    update_data: Callable[[InstanceSnapshot, Outcome], Mapping[str, Json]] | None = None
    """Returns the data that the transition adds to the instance."""
    label: str | None = None
    """The guard as it is shown to users."""


@dataclass(frozen=True, slots=True)
class Timeout:
    """Takes a transition once the instance has been in the state for `after` seconds."""

    after: float
    action: str


@dataclass(frozen=True, slots=True)
class State:
    """A state of the workflow."""

    name: str
    transitions: Sequence[Transition] = ()
    kind: EndKind | None = None
    """The kind of end, if the state is terminal."""
    action: StateAction | None = None
    on_error: str | None = None
    """The transition to take if the action finally fails. Without it, the task fails."""
    timeout: Timeout | None = None
    label: str | None = None
    """The action as it is shown to users."""

    def transition(self, action: str) -> Transition | None:
        return next((transition for transition in self.transitions if transition.action == action), None)


# Without slots, since cached properties need a `__dict__`.
@dataclass(frozen=True, eq=False)
class Machine:
    """A workflow with states. An instance of it is a task of the tool with its name."""

    name: str
    states: Sequence[State]
    version: str = ""
    """Instances continue under the version they started with. By default, it is a digest of the states."""
    description: str | None = None
    input_schema: Mapping[str, Json] = field(default_factory=lambda: {"type": "object"})
    guards: Mapping[str, Guard] = field(default_factory=dict[str, Guard])
    """The guards that transitions refer to by name."""
    subject: Callable[[Mapping[str, Json]], str | None] | None = None
    """Returns the subject of an instance that starts with these arguments."""
    result: Callable[[InstanceSnapshot], Json] | None = None
    """Returns the result of an instance that ends in success. By default, the result is its data."""
    timeout: float | None = None
    """Seconds for the whole instance."""
    definition: bytes | None = None
    """The stored definition, if the machine is built from a file."""
    unsafe_steps: Sequence[str] = ()
    """The states with `unsafe: true`, if the machine is built from a file."""

    def __post_init__(self) -> None:
        errors = [f"{where}: {message}" for where, message in check_states(self.states)]
        if errors:
            raise ConfigurationError("\n".join([f"workflow {self.name!r} is invalid:", *errors]))
        if not self.version:
            object.__setattr__(self, "version", self._digest())

    @property
    def initial(self) -> str:
        """The name of the state in which instances start."""
        return self.states[0].name

    @cached_property
    def by_name(self) -> Mapping[str, State]:
        return {state.name: state for state in self.states}

    def tool(self) -> TaskTool:
        """Return the tool that runs its instances."""
        # Imported here, since `run` depends on this module. The package has already loaded it.
        from raincheck.workflows.machines.run import machine_tool

        return machine_tool(self)

    def _digest(self) -> str:
        """Return a digest of the states and their transitions. It omits code, which can't be compared."""
        shape = [
            [
                state.name,
                state.kind,
                [[each.action, each.to, each.requires_reason, each.label] for each in state.transitions],
            ]
            for state in self.states
        ]
        return hashlib.sha256(json.dumps(shape).encode()).hexdigest()[:12]
