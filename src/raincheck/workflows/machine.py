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
"""

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from raincheck.core.payload import Json
from raincheck.engine.tools import TaskTool
from raincheck.engine.workflow import Kind, Situation
from raincheck.errors import ConfigurationError
from raincheck.workflows.machine_checks import faults_of

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
        from raincheck.workflows.machine_run import machine_tool

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
