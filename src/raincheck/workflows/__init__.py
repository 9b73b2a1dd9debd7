"""Workflows: guarded state machines, in Python or YAML, and YAML pipelines. Each is a tool with durable tasks."""

from typing import TYPE_CHECKING

from raincheck._lazy import lazy_exports
from raincheck.workflows.machines.run import machine_tool as machine_tool  # So that `Machine.tool` does not load it.

if TYPE_CHECKING:
    from raincheck.engine.workflow import InstanceSnapshot as InstanceSnapshot
    from raincheck.workflows.definition import Diagnostic as Diagnostic
    from raincheck.workflows.definition import InvalidWorkflow as InvalidWorkflow
    from raincheck.workflows.load import Workflows as Workflows
    from raincheck.workflows.load import load_workflows as load_workflows
    from raincheck.workflows.machines.machine import Machine as Machine
    from raincheck.workflows.machines.machine import Next as Next
    from raincheck.workflows.machines.machine import Outcome as Outcome
    from raincheck.workflows.machines.machine import State as State
    from raincheck.workflows.machines.machine import Timeout as Timeout
    from raincheck.workflows.machines.machine import Transition as Transition
    from raincheck.workflows.serve import WorkflowTasks as WorkflowTasks
else:
    # Imported on first use: YAML files need libraries that state machines in Python do not, and a server needs the SDK.
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "raincheck.engine.workflow": "InstanceSnapshot",
            "raincheck.workflows.definition": "Diagnostic InvalidWorkflow",
            "raincheck.workflows.load": "Workflows load_workflows",
            "raincheck.workflows.machines.machine": "Machine Next Outcome State Timeout Transition",
            "raincheck.workflows.serve": "WorkflowTasks",
        },
        extra="workflows",
    )
