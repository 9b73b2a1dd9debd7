"""Workflows: guarded state machines, in Python or YAML, and YAML pipelines. Each is a tool with durable tasks."""

from typing import TYPE_CHECKING, Any

from raincheck.engine.workflow import InstanceSnapshot
from raincheck.workflows.machines.machine import Machine, Next, Outcome, State, Timeout, Transition
from raincheck.workflows.machines.run import machine_tool as machine_tool  # So that `Machine.tool` does not load it.

if TYPE_CHECKING:
    from raincheck.workflows.definition import Diagnostic, InvalidWorkflow
    from raincheck.workflows.load import Workflows, load_workflows
    from raincheck.workflows.serve import WorkflowTasks

__all__ = [
    "Diagnostic",
    "InstanceSnapshot",
    "InvalidWorkflow",
    "Machine",
    "Next",
    "Outcome",
    "State",
    "Timeout",
    "Transition",
    "WorkflowTasks",
    "Workflows",
    "load_workflows",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any attribute of the package
    # YAML files need libraries that state machines in Python do not, and a server needs the SDK.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "WorkflowTasks":
        from raincheck.workflows.serve import WorkflowTasks

        return WorkflowTasks
    try:
        from raincheck.workflows import load
    except ImportError as error:
        raise ImportError(f"workflow files need {error.name}: pip install 'raincheck[workflows]'") from error
    return getattr(load, name)
