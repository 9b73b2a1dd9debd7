"""A workflow to test with, and words for what is seen of its processes."""

from typing import Any

from raincheck.core.records import Task, TaskId, View
from raincheck.engine.workflow import InstanceSnapshot
from raincheck.workflows import Machine, State, Timeout, Transition
from tests.support.engine.harness import Bench


def has_text(situation: InstanceSnapshot) -> object:
    return situation.data["text"]


def review(**options: Any) -> Machine:
    """A text is written, reviewed and published; it can be withdrawn until it is published."""
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


def add(bench: Bench, machine: Machine) -> None:
    bench.toolbox.add(machine.tool())


async def reach_state(bench: Bench, task_id: TaskId, state: str) -> Task:
    """Wait until the process is in a state."""
    view = await bench.engine.wait(task_id, until=lambda task: state_of(task) == state)
    assert state_of(view.task) == state, view
    return view.task


async def end_of(bench: Bench, task_id: TaskId) -> View:
    return await bench.engine.wait(task_id)


def state_of(task: Task) -> str | None:
    return None if task.state is None else task.state.name
