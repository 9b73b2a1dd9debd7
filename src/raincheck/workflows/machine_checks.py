"""What is wrong with a state machine, all of it at once."""

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raincheck.workflows.machine import State


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
