"""Tasks brought into any phase by what happens to them: each is created and then goes through `decide`."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from raincheck.core.change import Change
from raincheck.core.commands import Cancel, Claim, Command, Complete, Fail, Note, Park, Pause
from raincheck.core.create import NewTask, create
from raincheck.core.decide import decide
from raincheck.core.lifecycle import Phase
from raincheck.core.limits import Limits
from raincheck.core.owner import Owner
from raincheck.core.payload import encode
from raincheck.core.records import Artifact, InputKind, InputRequest, Step, Task, TaskId, Tool

START = datetime(2026, 1, 1, tzinfo=UTC)
LEASE = timedelta(seconds=30)
CLAIM = Claim("worker-1", LEASE)
ERROR = encode({"message": "broke"})
LIMITS = Limits()


def at(seconds: float) -> datetime:
    """So many seconds after the start of every story."""
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
    """What `decide` makes of it; there must be something."""
    made = decide(task, command, at(seconds), limits)
    assert made is not None, f"{command} changes nothing on {task}"
    return made


def after(task: Task, *commands: Command, seconds: float = 0, limits: Limits = LIMITS) -> Task:
    """The task after these commands, all at one moment."""
    for command in commands:
        task = change(task, command, seconds, limits).after
    return task


def running(**fields: Any) -> Task:
    """A new task with its first attempt under way."""
    return after(created(**fields), CLAIM)


def asking(*keys: str, **fields: Any) -> Task:
    """A running task with open questions."""
    return after(running(**fields), Note(1, input_requests=tuple(question(key) for key in keys)))


def question(key: str = "publish?") -> InputRequest:
    return InputRequest(key, InputKind.ELICITATION, encode({"message": "Publish it?"}), START, 1)


def step(name: str = "load", occurrence: int = 0) -> Step:
    return Step(name, occurrence, "fingerprint", encode([1, 2]), 1, START)


def artifact(name: str = "draft") -> Artifact:
    return Artifact(name, encode("text"), START)


def _situations() -> Mapping[str, Task]:
    """A task in every phase, and in the shades of a phase that rules tell apart.

    Each has a deadline at 1000 s and, while it lives, one open question, so that every command has something to do.
    """
    asks = asking("publish?", deadline_at=at(1_000))
    return {
        "queued": after(asks, Park(1, seen_signals=1)),
        "running": asks,
        "running, to be paused": after(asks, Pause("operator")),
        "parked for a moment": after(asks, Park(1, seen_signals=0, until=at(20))),
        "parked for an answer": after(asks, Park(1, seen_signals=0)),
        "paused": after(asks, Pause("operator"), Park(1, seen_signals=0, until=at(20))),
        "paused, never begun": after(created(deadline_at=at(1_000)), Pause("operator")),
        "completed": after(asks, Complete(1, encode("report"))),
        "failed": after(asks, Fail(1, ERROR, "broke", retryable=False)),
        "cancelled": after(asks, Cancel("alice")),
    }


SITUATIONS = _situations()

assert {task.phase for task in SITUATIONS.values()} == set(Phase)
