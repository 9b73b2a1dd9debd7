"""Workflows: guarded state machines, in Python or YAML, and YAML pipelines. Each is a tool, whose tasks are durable."""

from typing import TYPE_CHECKING, Any

from raincheck.engine.workflow import Situation
from raincheck.workflows.machines.machine import Machine, Next, Outcome, State, Timeout, Transition
from raincheck.workflows.machines.run import machine_tool as machine_tool  # So that `Machine.tool` need not load it.

if TYPE_CHECKING:
    from raincheck.workflows.definition import Fault, WorkflowFaults
    from raincheck.workflows.load import Workflows, load_workflows

__all__ = [
    "Fault",
    "Machine",
    "Next",
    "Outcome",
    "Situation",
    "State",
    "Timeout",
    "Transition",
    "WorkflowFaults",
    "Workflows",
    "load_workflows",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - what the package has under that name
    # Files need more than state machines in Python do.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from raincheck.workflows import load
    except ImportError as error:
        raise ImportError(f"files of workflows need {error.name}: pip install 'raincheck[workflows]'") from error
    return getattr(load, name)
