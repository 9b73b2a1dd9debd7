"""State machines from files."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import chain
from typing import Any, TypeAlias, cast

from raincheck.core.payload import Json
from raincheck.engine.execution.context import TaskContext
from raincheck.engine.workflow import Situation
from raincheck.errors import ToolError
from raincheck.workflows.actions.base import ActionFailed
from raincheck.workflows.definition import Arguments, Fault, WorkflowFaults
from raincheck.workflows.expressions.names import Names, check_expression, check_text
from raincheck.workflows.expressions.template import Expression, ExpressionFailed, Template
from raincheck.workflows.machines.machine import Action, Machine, Outcome, State, Timeout, Transition, faults_of
from raincheck.workflows.parsing.models import ActionModel, MachineModel, StateModel, TransitionModel, object_schema
from raincheck.workflows.parsing.source import Route, Source
from raincheck.workflows.permissions import Surroundings
from raincheck.workflows.pipelines.pipeline import digest
from raincheck.workflows.pipelines.retry import Doing, TriesMade
from raincheck.workflows.stored import kept
from raincheck.workflows.validation.pipeline import WAITING, check_inputs
from raincheck.workflows.validation.steps import check_reach, texts_in, values_of

Scope: TypeAlias = Callable[[Situation, Outcome], Mapping[str, Json]]

OUTCOME = ("result", "error", "failed")
"""What expressions see of a state's action when it is done."""


def machine_of(
    model: MachineModel, name: str, source: Source, surroundings: Surroundings, left_out: Sequence[Route] = ()
) -> Machine:
    """The state machine of that name in a file. What follows from something that was left out is no fault.

    Raises:
        WorkflowFaults: it can't work. Every fault is named.
    """
    faults = find_faults(model, name, source, surroundings, left_out)
    if faults or left_out:
        raise WorkflowFaults(faults)
    schema = cast("Mapping[str, Json]", object_schema(model.input))
    arguments = Arguments(name, schema)
    scope = _scope_with(arguments)
    subject = None if model.subject is None else Template.parse(model.subject)
    output = None if model.output is None else Template.parse(cast("Json", model.output))
    return Machine(
        name,
        [_state(one, state, scope, surroundings) for one, state in _ordered(model)],
        version=model.version or digest(cast("Any", source.data)["workflows"][name]),
        description=model.description,
        input_schema=schema,
        subject=None
        if subject is None
        else lambda given: str(subject.render({"input": arguments.with_defaults(given)})),
        result=None if output is None else partial(_result, output, scope),
        timeout=model.timeout,
        definition=kept(source, name),
    )


def find_faults(
    model: MachineModel, name: str, source: Source, surroundings: Surroundings, left_out: Sequence[Route]
) -> list[Fault]:
    """Every fault of a state machine."""
    names = Names(
        frozenset(model.input), frozenset(), frozenset(), surroundings.env, roots=frozenset({"input", "data", "state"})
    )
    findings = chain(
        check_inputs(model, names.without("data", "state")),
        _structure(model, {str(name) for route in left_out if route[:1] == ("states",) for name in route[1:2]}),
        *(_state_faults(("states", one), state, names, surroundings) for one, state in model.states.items()),
        _texts(("output",), model.output, names),
    )
    return [source.fault(("workflows", name, *route), message) for route, message in findings]


def _structure(model: MachineModel, unsure: AbstractSet[str]) -> Iterator[tuple[Route, str]]:
    """How states hang together, as far as it is known of each."""
    firsts = [name for name, state in model.states.items() if state.initial]
    if len(firsts) > 1:
        yield ("states", firsts[1], "initial"), f"{firsts[0]!r} is where processes begin: only one state can be"
    states = [_bare(name, state) for name, state in _ordered(model)]
    for where, message in faults_of(states, is_whole=not unsure and len(firsts) < 2):
        route = tuple(where.split("."))
        if unsure.isdisjoint(route[1:2]):
            yield route, message


def _state_faults(
    at: Route, state: StateModel, names: Names, surroundings: Surroundings
) -> Iterator[tuple[Route, str]]:
    if state.action is not None:
        acting = names if state.action.kind in WAITING else names.adding("env")
        for route, text in values_of(state.action):
            yield from (((*at, "action", *route), message) for message in check_text(text, acting))
        for route, message in check_reach(state.action, surroundings):
            yield (*at, "action", *route), message
    for action, one in state.transitions.items():
        way: Route = (*at, "transitions", action)
        done = names.adding(*OUTCOME)
        for key, said, those in (("guard", one.guard, names), ("on", one.on, done)):
            if said is not None:
                yield from (((*way, key), message) for message in check_expression(said, those))
        yield from _texts((*way, "set"), one.set, done)


def _texts(route: Route, value: Any, names: Names) -> Iterator[tuple[Route, str]]:  # noqa: ANN401 - whatever the file says
    for place, text in texts_in(value, route):
        yield from ((place, message) for message in check_text(text, names))


def _ordered(model: MachineModel) -> list[tuple[str, StateModel]]:
    """The states, the first one first."""
    return sorted(model.states.items(), key=lambda pair: not pair[1].initial)


def _bare(name: str, state: StateModel) -> State:
    """As much of a state as its place among the others can be told from."""
    ways = [Transition(action, one.to, on=_nothing if one.on else None) for action, one in state.transitions.items()]
    timeout = None if state.timeout is None else Timeout(state.timeout.after, state.timeout.take)
    return State(name, ways, state.kind, None if state.action is None else _nothing, timeout=timeout)


def _nothing(*_: object) -> None: ...


def _state(name: str, state: StateModel, scope: Scope, surroundings: Surroundings) -> State:
    doing = None if state.action is None else Doing(state.action, surroundings)
    return State(
        name,
        [_transition(action, one, scope) for action, one in state.transitions.items()],
        state.kind,
        None if doing is None or state.action is None else _action(doing, state.action, scope),
        timeout=None if state.timeout is None else Timeout(state.timeout.after, state.timeout.take),
        words=None if doing is None else doing.action.words,
    )


def _transition(action: str, model: TransitionModel, scope: Scope) -> Transition:
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
        words=model.guard or model.on,
    )


def _action(doing: Doing, model: ActionModel, scope: Scope) -> Action:
    async def act(situation: Situation, task: TaskContext) -> Outcome:
        tries = TriesMade(task)
        outcome = await doing.outcome(tries, "action", scope(situation, Outcome()))
        if not outcome.is_ok:
            return Outcome(error=cast("Mapping[str, Json]", outcome.error))
        try:
            await tries.keep(model.artifact, outcome.result)
        except ActionFailed as error:
            return Outcome(error={"kind": error.kind, "message": str(error)})
        return Outcome(outcome.result)

    return act


def _result(output: Template, scope: Scope, situation: Situation) -> Json:
    try:
        return output.render(scope(situation, Outcome()))
    except ExpressionFailed as error:
        raise ToolError(f"the output can't be worked out: {error}") from error


def _scope_with(arguments: Arguments) -> Scope:
    def scope(situation: Situation, outcome: Outcome) -> Mapping[str, Json]:
        return {
            "input": arguments.with_defaults(situation.input),
            "data": situation.data,
            "state": situation.state,
            "result": outcome.result,
            "error": outcome.error,
            "failed": outcome.error is not None,
        }

    return scope
