"""Tasks in any phase: each is created and then changed by commands through `decide`."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from raincheck.core.change import Change, NewTask, create
from raincheck.core.commands import Cancel, Claim, Command, Complete, Fail, Note, Park, Pause
from raincheck.core.decide import decide
from raincheck.core.lifecycle import Phase
from raincheck.core.owner import Owner
from raincheck.core.policies import Limits
from raincheck.core.records import Artifact, InputKind, InputRequest, Step, Task, TaskId, Tool
from raincheck.core.values import encode

START = datetime(2026, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)
CLAIM = Claim("worker-1", LEASE)
ERROR = encode({"message": "broke"})
LIMITS = Limits()


def at(seconds: float) -> datetime:
    """Return the time this many seconds after the start."""
    return START + timedelta(seconds=seconds)


def new(**fields: Any) -> NewTask:
    base: dict[str, Any] = {
        "id": TaskId("task-1"),
        "namespace": "reports",
        "owner": Owner.token("https://issuer.example", "alice"),
        "tool": Tool("build_report"),
        "arguments": encode({"year": 2026}),
    }
    return NewTask(**(base | fields))


def created(**fields: Any) -> Task:
    return create(new(**fields), START, LIMITS).task


def change(task: Task, command: Command, seconds: float = 0, limits: Limits = LIMITS) -> Change:
    """Return the change that `decide` returns, which must not be None."""
    decided = decide(task, command, at(seconds), limits)
    assert decided is not None, f"{command} changes nothing on {task}"
    return decided


def after(task: Task, *commands: Command, seconds: float = 0, limits: Limits = LIMITS) -> Task:
    """Return the task after these commands, all at the same time."""
    for command in commands:
        task = change(task, command, seconds, limits).after
    return task


def running(**fields: Any) -> Task:
    """Return a new task whose first attempt is running."""
    return after(created(**fields), CLAIM)


def asking(*keys: str, **fields: Any) -> Task:
    """Return a running task with open questions."""
    return after(running(**fields), Note(1, input_requests=tuple(question(key) for key in keys)))


def question(key: str = "publish?") -> InputRequest:
    return InputRequest(key, InputKind.ELICITATION, encode({"message": "Publish it?"}), START, 1)


def step(name: str = "load", occurrence: int = 0) -> Step:
    return Step(name, occurrence, "fingerprint", encode([1, 2]), 1, START)


def artifact(name: str = "draft") -> Artifact:
    return Artifact(name, encode("text"), START)


def _situations() -> Mapping[str, Task]:
    """Return a task in every phase, and in the variants of a phase that the rules distinguish.

    Each has a deadline at 1000 s and, while it is live, one open question, so that every command has an effect.
    """
    asks = asking("publish?", deadline_at=at(1_000))
    return {
        "queued": after(asks, Park(1, seen_signals=1)),
        "running": asks,
        "running, to be paused": after(asks, Pause("operator")),
        "parked for a moment": after(asks, Park(1, seen_signals=0, until=at(20))),
        "parked for an answer": after(asks, Park(1, seen_signals=0)),
        "paused": after(asks, Pause("operator"), Park(1, seen_signals=0, until=at(20))),
        "paused, never started": after(created(deadline_at=at(1_000)), Pause("operator")),
        "completed": after(asks, Complete(1, encode("report"))),
        "failed": after(asks, Fail(1, ERROR, "broke", retryable=False)),
        "cancelled": after(asks, Cancel("alice")),
    }


SITUATIONS = _situations()

assert {task.phase for task in SITUATIONS.values()} == set(Phase)
