"""The kinds of actions."""

from typing import Any, assert_never

from raincheck.workflows.action import Action
from raincheck.workflows.action_model import ActionModel
from raincheck.workflows.steps_call import Call
from raincheck.workflows.steps_http import Http
from raincheck.workflows.steps_python import Python
from raincheck.workflows.steps_run import Run
from raincheck.workflows.steps_sample import sampling
from raincheck.workflows.steps_set import Set
from raincheck.workflows.steps_waiting import Ask, Sleep, Workflow
from raincheck.workflows.surroundings import Surroundings


def action_of(model: ActionModel, surroundings: Surroundings) -> Action:
    """What the model says is to be done."""
    # Whatever its kind says of it. Its model has seen to that it is there.
    said: Any = getattr(model, model.kind)
    match model.kind:
        case "run":
            return Run(said, surroundings)
        case "http":
            return Http(said, surroundings)
        case "python":
            return Python(said, model.arguments, surroundings)
        case "call":
            return Call(said, surroundings)
        case "ask":
            return Ask(said)
        case "sample":
            return sampling(said)
        case "workflow":
            return Workflow(said, model.arguments)
        case "set":
            return Set(said, surroundings)
        case "sleep":
            return Sleep(said)
        case _:
            assert_never(model.kind)
