"""Tasks and views for tests, made by `create` and `decide`."""

from datetime import UTC, datetime, timedelta
from typing import Any

from raincheck.core.change import NewTask, create
from raincheck.core.commands import Answer, Claim, Command, Note
from raincheck.core.decide import decide
from raincheck.core.owner import Owner
from raincheck.core.policies import Limits
from raincheck.core.records import InputKind, InputRequest, Task, TaskId, Tool, View
from raincheck.core.values import Json, encode

START = datetime(2026, 7, 28, 10, 30, tzinfo=UTC)
CLAIM = Claim("worker-1", timedelta(seconds=30))
FORM: Json = {
    "message": "Publish it?",
    "requestedSchema": {"type": "object", "properties": {"ok": {"type": "boolean"}}},
}
MESSAGES: Json = [{"role": "user", "content": {"type": "text", "text": "Sum it up."}}]


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def created_task(*, now: datetime = START, **fields: Any) -> Task:
    base: dict[str, Any] = {
        "id": TaskId("task-1"),
        "namespace": "reports",
        "owner": Owner.token("https://issuer.example", "alice"),
        "tool": Tool("build_report"),
        "arguments": encode({"year": 2026}),
    }
    return create(NewTask(**(base | fields)), now, Limits()).task


def running_task(**fields: Any) -> Task:
    return view_after(created_task(**fields), CLAIM).task


def view_after(task: Task, *commands: Command, now: datetime | None = None) -> View:
    """The view of a task after these commands."""
    outcome = None
    inputs: dict[str, InputRequest] = {}
    for command in commands:
        change = decide(task, command, now or task.updated_at)
        assert change is not None, f"{command} changes nothing on {task}"
        task, outcome = change.after, change.outcome
        inputs |= {one.key: one for one in change.inputs}
    return View(task, outcome, () if task.is_terminal else tuple(inputs.values()))


def question(key: str = "elicit-0", kind: InputKind = InputKind.ELICITATION, request: Json = FORM) -> InputRequest:
    return InputRequest(key, kind, encode(request), START, 1)


def view_with_questions(*questions: InputRequest, answered: tuple[str, ...] = ()) -> View:
    """The view of a running task with these questions, some of which are answered."""
    commands: list[Command] = [Note(1, input_requests=questions)]
    if answered:
        commands.append(Answer(questions, {key: encode({"action": "accept"}) for key in answered}, "alice"))
    return view_after(running_task(), *commands)
