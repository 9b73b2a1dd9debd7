"""A state machine to test with, and helpers for its instances."""

from typing import Any

from raincheck.core.records import Task, TaskId, View
from raincheck.engine.workflow import InstanceSnapshot
from raincheck.workflows import Machine, State, Timeout, Transition
from tests.support.engine.harness import EngineHarness


def has_text(snapshot: InstanceSnapshot) -> object:
    return snapshot.data["text"]


def review(**options: Any) -> Machine:
    """Return a machine in which a text is written, reviewed and published, or withdrawn before that."""
    return Machine(
        "review",
        states=[
            State(
                "draft",
                [
                    Transition("submit", "reviewed", guard=has_text, label="there is a text"),
                    Transition("withdraw", "withdrawn"),
                ],
            ),
            State(
                "reviewed",
                [
                    Transition("approve", "published"),
                    Transition("reject", "draft", requires_reason=True),
                    Transition("refuse", "refused"),
                    Transition("withdraw", "withdrawn", guard="may_withdraw"),
                    Transition("lock", "locked"),
                ],
            ),
            State("locked", [Transition("unlock", "reviewed")], timeout=Timeout(3_600, "unlock")),
            State("published", kind="success"),
            State("refused", kind="failure"),
            State("withdrawn", kind="cancel"),
        ],
        **options,
    )


def add(harness: EngineHarness, machine: Machine) -> None:
    harness.toolbox.add(machine.tool())


async def reach_state(harness: EngineHarness, task_id: TaskId, state: str) -> Task:
    """Wait until the instance is in a state."""
    view = await harness.engine.wait(task_id, until=lambda task: state_of(task) == state)
    assert state_of(view.task) == state, view
    return view.task


async def end_of(harness: EngineHarness, task_id: TaskId) -> View:
    return await harness.engine.wait(task_id)


def state_of(task: Task) -> str | None:
    return None if task.state is None else task.state.name
