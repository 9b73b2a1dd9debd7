"""Build state machines from workflow files."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import chain
from typing import Any, TypeAlias, cast

from raincheck.core.payload import Json
from raincheck.engine.execution.context import TaskContext
from raincheck.engine.workflow import InstanceSnapshot
from raincheck.errors import ToolError
from raincheck.workflows.actions.base import ActionFailed
from raincheck.workflows.definition import ArgumentValidator, Diagnostic, InvalidWorkflow
from raincheck.workflows.expressions.names import AllowedNames, check_expression, check_text
from raincheck.workflows.expressions.template import Expression, ExpressionFailed, Template
from raincheck.workflows.machines.machine import Machine, Outcome, State, StateAction, Timeout, Transition, check_states
from raincheck.workflows.parsing.models import ActionModel, MachineModel, StateModel, TransitionModel, object_schema
from raincheck.workflows.parsing.source import KeyPath, Source
from raincheck.workflows.permissions import Permissions
from raincheck.workflows.pipelines.pipeline import digest
from raincheck.workflows.pipelines.retry import ActionRunner, LiveTries
from raincheck.workflows.stored import encode_definition
from raincheck.workflows.validation.pipeline import WAITING_KINDS, check_inputs
from raincheck.workflows.validation.steps import check_references, templates_in, texts_in

ScopeFactory: TypeAlias = Callable[[InstanceSnapshot, Outcome], Mapping[str, Json]]

OUTCOME = ("result", "error", "failed")
"""The names under which expressions read the outcome of a state's action."""


def build_machine(
    model: MachineModel, name: str, source: Source, permissions: Permissions, omitted: Sequence[KeyPath] = ()
) -> Machine:
    """Build the state machine of that name in a file. Consequences of `omitted` parts are not reported as errors.

    Raises:
        InvalidWorkflow: it is invalid; it lists every error.
    """
    faults = check_machine(model, name, source, permissions, omitted)
    if faults or omitted:
        raise InvalidWorkflow(faults)
    schema = cast("Mapping[str, Json]", object_schema(model.input))
    arguments = ArgumentValidator(name, schema)
    scope = _scope_factory(arguments)
    subject = None if model.subject is None else Template.parse(model.subject)
    output = None if model.output is None else Template.parse(cast("Json", model.output))
    return Machine(
        name,
        [_state(one, state, scope, permissions) for one, state in _ordered(model)],
        version=model.version or digest(cast("Any", source.data)["workflows"][name]),
        description=model.description,
        input_schema=schema,
        subject=None
        if subject is None
        else lambda given: str(subject.render({"input": arguments.with_defaults(given)})),
        result=None if output is None else partial(_result, output, scope),
        timeout=model.timeout,
        definition=encode_definition(source, name),
    )


def check_machine(
    model: MachineModel, name: str, source: Source, permissions: Permissions, omitted: Sequence[KeyPath]
) -> list[Diagnostic]:
    """Return every error of a state machine."""
    names = AllowedNames(
        frozenset(model.input), frozenset(), frozenset(), permissions.env, roots=frozenset({"input", "data", "state"})
    )
    findings = chain(
        check_inputs(model, names.without_roots("data", "state")),
        _structure(model, {str(name) for route in omitted if route[:1] == ("states",) for name in route[1:2]}),
        *(_check_state(("states", one), state, names, permissions) for one, state in model.states.items()),
        _texts(("output",), model.output, names),
    )
    return [source.diagnostic(("workflows", name, *route), message) for route, message in findings]


def _structure(model: MachineModel, unsure: AbstractSet[str]) -> Iterator[tuple[KeyPath, str]]:
    """Check how states are connected, as far as each of them is known."""
    firsts = [name for name, state in model.states.items() if state.initial]
    if len(firsts) > 1:
        yield ("states", firsts[1], "initial"), f"{firsts[0]!r} is where processes begin: only one state can be"
    states = [_skeleton_state(name, state) for name, state in _ordered(model)]
    for where, message in check_states(states, is_whole=not unsure and len(firsts) < 2):
        route = tuple(where.split("."))
        if unsure.isdisjoint(route[1:2]):
            yield route, message


def _check_state(
    at: KeyPath, state: StateModel, names: AllowedNames, permissions: Permissions
) -> Iterator[tuple[KeyPath, str]]:
    if state.action is not None:
        acting = names if state.action.kind in WAITING_KINDS else names.with_roots("env")
        for route, text in templates_in(state.action):
            yield from (((*at, "action", *route), message) for message in check_text(text, acting))
        for route, message in check_references(state.action, permissions):
            yield (*at, "action", *route), message
    for action, one in state.transitions.items():
        way: KeyPath = (*at, "transitions", action)
        done = names.with_roots(*OUTCOME)
        for key, said, those in (("guard", one.guard, names), ("on", one.on, done)):
            if said is not None:
                yield from (((*way, key), message) for message in check_expression(said, those))
        yield from _texts((*way, "set"), one.set, done)


def _texts(route: KeyPath, value: Any, names: AllowedNames) -> Iterator[tuple[KeyPath, str]]:  # noqa: ANN401 - any YAML value
    for place, text in texts_in(value, route):
        yield from ((place, message) for message in check_text(text, names))


def _ordered(model: MachineModel) -> list[tuple[str, StateModel]]:
    """Return the states, with the initial one first."""
    return sorted(model.states.items(), key=lambda pair: not pair[1].initial)


def _skeleton_state(name: str, state: StateModel) -> State:
    """Return only as much of a state as its connections to other states depend on."""
    ways = [Transition(action, one.to, on=_nothing if one.on else None) for action, one in state.transitions.items()]
    timeout = None if state.timeout is None else Timeout(state.timeout.after, state.timeout.take)
    return State(name, ways, state.kind, None if state.action is None else _nothing, timeout=timeout)


def _nothing(*_: object) -> None: ...


def _state(name: str, state: StateModel, scope: ScopeFactory, permissions: Permissions) -> State:
    doing = None if state.action is None else ActionRunner(state.action, permissions)
    return State(
        name,
        [_transition(action, one, scope) for action, one in state.transitions.items()],
        state.kind,
        None if doing is None or state.action is None else _action(doing, state.action, scope),
        timeout=None if state.timeout is None else Timeout(state.timeout.after, state.timeout.take),
        label=None if doing is None else doing.action.label,
    )


def _transition(action: str, model: TransitionModel, scope: ScopeFactory) -> Transition:
    guard = None if model.guard is None else Expression.parse(model.guard)
    on = None if model.on is None else Expression.parse(model.on)
    added = Template.parse(cast("Json", dict(model.set)))
    return Transition(
        action,
        model.to,
        None if guard is None else lambda situation: guard.evaluate(scope(situation, Outcome())),
        model.requires_reason,
        None if on is None else lambda situation, outcome: on.evaluate(scope(situation, outcome)),
        lambda situation, outcome: cast("Mapping[str, Json]", added.render(scope(situation, outcome))),
        label=model.guard or model.on,
    )


def _action(doing: ActionRunner, model: ActionModel, scope: ScopeFactory) -> StateAction:
    async def act(situation: InstanceSnapshot, task: TaskContext) -> Outcome:
        tries = LiveTries(task)
        outcome = await doing.run(tries, "action", scope(situation, Outcome()))
        if not outcome.is_ok:
            return Outcome(error=cast("Mapping[str, Json]", outcome.error))
        try:
            await tries.store_artifact(model.artifact, outcome.result)
        except ActionFailed as error:
            return Outcome(error={"kind": error.kind, "message": str(error)})
        return Outcome(outcome.result)

    return act


def _result(output: Template, scope: ScopeFactory, situation: InstanceSnapshot) -> Json:
    try:
        return output.render(scope(situation, Outcome()))
    except ExpressionFailed as error:
        raise ToolError(f"the output can't be worked out: {error}") from error


def _scope_factory(arguments: ArgumentValidator) -> ScopeFactory:
    def scope(situation: InstanceSnapshot, outcome: Outcome) -> Mapping[str, Json]:
        return {
            "input": arguments.with_defaults(situation.input),
            "data": situation.data,
            "state": situation.state,
            "result": outcome.result,
            "error": outcome.error,
            "failed": outcome.error is not None,
        }

    return scope
