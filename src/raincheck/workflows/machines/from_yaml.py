"""Build state machines from workflow files."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from typing import TypeAlias, cast

from raincheck.core.values import Json
from raincheck.engine.execution.context import TaskContext
from raincheck.engine.workflow import InstanceSnapshot
from raincheck.errors import ToolError
from raincheck.workflows.actions import check_action, make_action
from raincheck.workflows.actions.base import Action, ActionFailed, ActionResult, Tries
from raincheck.workflows.definition import ArgumentValidator, KeyPath, Problem
from raincheck.workflows.expressions.template import (
    AllowedNames,
    Expression,
    ExpressionFailed,
    Template,
    check_expression,
    check_texts,
)
from raincheck.workflows.machines.machine import Machine, Outcome, State, StateAction, Timeout, Transition, check_states
from raincheck.workflows.parsing.models import ActionModel, MachineModel, StateModel, TransitionModel, object_schema
from raincheck.workflows.permissions import Permissions
from raincheck.workflows.validation import check_inputs

ScopeFactory: TypeAlias = Callable[[InstanceSnapshot, Outcome], Mapping[str, Json]]

OUTCOME = ("result", "error", "failed")
"""The names under which expressions read the outcome of a state's action."""


def build_machine(name: str, model: MachineModel, permissions: Permissions, version: str, definition: bytes) -> Machine:
    """Build a state machine from a model that `check_machine` has found no problem with."""
    schema = cast("Mapping[str, Json]", object_schema(model.input))
    arguments = ArgumentValidator(name, schema)
    scope = _scope_factory(arguments)
    subject = None if model.subject is None else Template.parse(model.subject)
    output = None if model.output is None else Template.parse(cast("Json", model.output))
    return Machine(
        name,
        [_state(state_name, state, scope, permissions) for state_name, state in _ordered(model)],
        version=version,
        description=model.description,
        input_schema=schema,
        subject=None
        if subject is None
        else lambda values: str(subject.render({"input": arguments.with_defaults(values)})),
        result=None if output is None else partial(_result, output, scope),
        timeout=model.timeout,
        definition=definition,
        unsafe_steps=[
            state_name
            for state_name, state in model.states.items()
            if state.action is not None and state.action.is_unsafe
        ],
    )


def check_machine(model: MachineModel, permissions: Permissions, omitted: Sequence[KeyPath]) -> Iterator[Problem]:
    """Yield every error of a state machine, except for the consequences of `omitted` parts."""
    roots = frozenset({"input", "data", "state"})
    names = AllowedNames(inputs=model.input, env=permissions.env, roots=roots)
    yield from check_inputs(model, names.without_roots("data", "state"))
    yield from _structure(model, {str(name) for route in omitted if route[:1] == ("states",) for name in route[1:2]})
    for name, state in model.states.items():
        yield from _check_state(("states", name), state, names, permissions)
    yield from check_texts(model.output, ("output",), names)


def _structure(model: MachineModel, incomplete: AbstractSet[str]) -> Iterator[Problem]:
    """Check how states are connected. `incomplete` states have invalid parts, so their errors are not reported."""
    initial = [name for name, state in model.states.items() if state.initial]
    if len(initial) > 1:
        yield ("states", initial[1], "initial"), f"state {initial[0]!r} is initial already: only one state can be"
    states = [_skeleton_state(name, state) for name, state in _ordered(model)]
    for where, message in check_states(states, is_complete=not incomplete and len(initial) < 2):
        route = tuple(where.split("."))
        if incomplete.isdisjoint(route[1:2]):
            yield route, message


def _check_state(at: KeyPath, state: StateModel, names: AllowedNames, permissions: Permissions) -> Iterator[Problem]:
    if state.action is not None:
        for route, message in check_action(state.action, names.with_roots("env"), permissions):
            yield (*at, "action", *route), message
    outcome_names = names.with_roots(*OUTCOME)
    for action, transition in state.transitions.items():
        route = (*at, "transitions", action)
        for key, text, allowed in (("guard", transition.guard, names), ("on", transition.on, outcome_names)):
            if text is not None:
                yield from check_expression(text, (*route, key), allowed)
        yield from check_texts(transition.set, (*route, "set"), outcome_names)


def _ordered(model: MachineModel) -> list[tuple[str, StateModel]]:
    """Return the states, with the initial one first."""
    return sorted(model.states.items(), key=lambda pair: not pair[1].initial)


def _skeleton_state(name: str, state: StateModel) -> State:
    """Return only as much of a state as its connections to other states depend on."""
    transitions = [
        Transition(action, transition.to, on=_placeholder if transition.on else None)
        for action, transition in state.transitions.items()
    ]
    timeout = None if state.timeout is None else Timeout(state.timeout.after, state.timeout.take)
    return State(name, transitions, state.kind, None if state.action is None else _placeholder, timeout=timeout)


def _placeholder(*_: object) -> None: ...


def _state(name: str, state: StateModel, scope: ScopeFactory, permissions: Permissions) -> State:
    action = None if state.action is None else make_action(state.action, permissions)
    return replace(
        _skeleton_state(name, state),
        transitions=[_transition(action, transition, scope) for action, transition in state.transitions.items()],
        action=None if action is None or state.action is None else _state_action(action, state.action, scope),
        label=None if action is None else action.label,
    )


def _transition(action: str, model: TransitionModel, scope: ScopeFactory) -> Transition:
    guard = None if model.guard is None else Expression.parse(model.guard)
    on = None if model.on is None else Expression.parse(model.on)
    added = Template.parse(cast("Json", dict(model.set)))
    return Transition(
        action,
        model.to,
        None if guard is None else lambda snapshot: guard.evaluate(scope(snapshot, Outcome())),
        model.requires_reason,
        None if on is None else lambda snapshot, outcome: on.evaluate(scope(snapshot, outcome)),
        lambda snapshot, outcome: cast("Mapping[str, Json]", added.render(scope(snapshot, outcome))),
        label=model.guard or model.on,
    )


def _state_action(action: Action, model: ActionModel, scope: ScopeFactory) -> StateAction:
    async def act(snapshot: InstanceSnapshot, task: TaskContext) -> Outcome:
        tries = Tries(task)
        outcome = await action.run(tries, "action", scope(snapshot, Outcome()))
        try:
            if outcome.is_ok:
                await tries.store_artifact(model.artifact, outcome.result)
        except ActionFailed as error:
            outcome = ActionResult.from_error(error)
        return Outcome(outcome.result, outcome.error)

    return act


def _result(output: Template, scope: ScopeFactory, snapshot: InstanceSnapshot) -> Json:
    try:
        return output.render(scope(snapshot, Outcome()))
    except ExpressionFailed as error:
        raise ToolError(f"the output can't be evaluated: {error}") from error


def _scope_factory(arguments: ArgumentValidator) -> ScopeFactory:
    def scope(snapshot: InstanceSnapshot, outcome: Outcome) -> Mapping[str, Json]:
        return {
            "input": arguments.with_defaults(snapshot.input),
            "data": snapshot.data,
            "state": snapshot.state,
            "result": outcome.result,
            "error": outcome.error,
            "failed": outcome.error is not None,
        }

    return scope
