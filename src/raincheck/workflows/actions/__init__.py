"""The actions that a step or a state can take. `ACTIONS` lists their classes by kind."""

from collections.abc import Iterator, Mapping

from raincheck.workflows.actions.base import Action
from raincheck.workflows.actions.call import CallAction
from raincheck.workflows.actions.command_values import check_values
from raincheck.workflows.actions.http import HttpAction
from raincheck.workflows.actions.python import PythonAction, SetAction
from raincheck.workflows.actions.run import RunAction
from raincheck.workflows.actions.wait import AskAction, SampleAction, SleepAction, WorkflowAction
from raincheck.workflows.definition import Problem
from raincheck.workflows.expressions.template import AllowedNames, check_texts
from raincheck.workflows.parsing.models import ActionKind, ActionModel
from raincheck.workflows.permissions import Permissions

ACTIONS: Mapping[ActionKind, type[Action]] = {
    "run": RunAction,
    "http": HttpAction,
    "python": PythonAction,
    "call": CallAction,
    "ask": AskAction,
    "sample": SampleAction,
    "workflow": WorkflowAction,
    "set": SetAction,
    "sleep": SleepAction,
}


def make_action(model: ActionModel, permissions: Permissions) -> Action:
    """Return the action that the model declares."""
    return ACTIONS[model.kind](model, permissions)


def check_action(model: ActionModel, names: AllowedNames, permissions: Permissions) -> Iterator[Problem]:
    """Yield the problems of an action: in the expressions of its values, and what its kind checks."""
    action = ACTIONS[model.kind]
    names = names.without_roots("env") if action.waits else names
    value = getattr(model, model.kind)
    if action.template_keys:
        fields = value.model_dump(by_alias=True)
        value = {key: fields[key] for key in action.template_keys}
    yield from check_texts({model.kind: value, "with": model.arguments}, (), names)
    yield from action.check(model, permissions)
    if model.run is not None:
        yield from check_values(model.run, names.inputs)
