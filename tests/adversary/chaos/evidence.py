"""What an attack observed: every exchange with a server, the log of side effects, and the store's last export."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

Generation = Literal["2025-11-25", "2026-07-28"]
TERMINAL = frozenset(("completed", "failed", "cancelled"))


@dataclass(frozen=True, slots=True)
class Message:
    """A message that a server pushed on the stream of a request, before its answer."""

    at: float
    method: str
    params: Mapping[str, Any]


@dataclass(slots=True)
class Exchange:
    """A request and its outcome. All times are seconds since boot."""

    sent_at: float
    owner: str
    generation: Generation
    method: str
    params: Mapping[str, Any]
    is_probe: bool = False
    """The request names another owner's task, or one that does not exist."""

    received_at: float | None = None
    result: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    messages: list[Message] = field(default_factory=list[Message])

    @property
    def task_id(self) -> str | None:
        """The task that the request names, or that its answer created."""
        named: str | None = self.params.get("taskId")
        return named or self.created_id

    @property
    def created_id(self) -> str | None:
        if self.method != "tools/call" or self.result is None:
            return None
        task: Mapping[str, Any] = self.result.get("task", self.result)
        return task.get("taskId")


@dataclass(frozen=True, slots=True)
class Sighting:
    """A task as a server showed it at some time between `sent_at` and `received_at`."""

    exchange: Exchange
    received_at: float
    task: Mapping[str, Any]
    sent_at: float = 0.0

    @property
    def status(self) -> str:
        status: str = self.task["status"]
        return status


@dataclass(frozen=True, slots=True)
class Effect:
    """A line of the log of side effects. Effects are in the order in which they were appended."""

    at: float
    pid: int
    subject: str
    """The task's id, or for steps of workflows the key that their caller chose."""

    attempt: int
    event: str
    detail: str


def read_effects(file: Path) -> list[Effect]:
    """Read the log. A line that a full disk cut off is left out."""
    effects: list[Effect] = []
    for line in file.read_text().splitlines() if file.exists() else []:
        fields = line.split("\t")
        try:
            at, pid, subject, attempt, event, detail = fields
            effects.append(Effect(float(at), int(pid), subject, int(attempt), event, detail))
        except ValueError:
            continue
    return effects


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a caller wanted when it called a tool, and what has to come of it."""

    tool: str
    arguments: Mapping[str, Any]
    expected: Any = None
    """The structured result if the task completes; None if there is nothing to compare."""

    may_fail: bool = False
    """The tool must not run twice, so that an interruption fails its task."""


@dataclass(frozen=True, slots=True)
class Listing:
    """All pages of one `tasks/list`."""

    owner: str
    sent_at: float
    ids: frozenset[str]


@dataclass(slots=True)
class Evidence:
    """All that was observed."""

    exchanges: Sequence[Exchange]
    effects: Sequence[Effect]
    exported: Mapping[str, Mapping[str, Any]]
    """The tasks in the store at the end, by id."""

    plans: Mapping[str, Plan] = field(default_factory=dict[str, Plan])
    """By the id of the task that a call returned."""

    listings: Sequence[Listing] = ()
    exported_at: float = float("inf")
    loose_ends: Sequence[str] = ()
    """What the driver saw itself: a process that ended by itself, tasks that did not settle."""


class Index:
    """The evidence, by task."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.exchanges: defaultdict[str, list[Exchange]] = defaultdict(list)
        self.sightings: defaultdict[str, list[Sighting]] = defaultdict(list)
        self.effects: defaultdict[str, list[tuple[int, Effect]]] = defaultdict(list)
        for exchange in evidence.exchanges:
            if exchange.task_id is not None:
                self.exchanges[exchange.task_id].append(exchange)
            for sighting in _sightings(exchange):
                self.sightings[sighting.task["taskId"]].append(sighting)
        for position, effect in enumerate(evidence.effects):
            self.effects[effect.subject].append((position, effect))

    @cached_property
    def handles(self) -> Mapping[str, Exchange]:
        """For each task that a caller knows: the exchange that created it, the first one if there were several."""
        found: dict[str, Exchange] = {}
        for exchange in self.evidence.exchanges:
            if exchange.created_id is not None:
                found.setdefault(exchange.created_id, exchange)
        return found

    def own(self, task_id: str) -> Iterator[Exchange]:
        """The exchanges of a task's owner about it."""
        return (exchange for exchange in self.exchanges[task_id] if not exchange.is_probe)


def _sightings(exchange: Exchange) -> Iterator[Sighting]:
    for message in exchange.messages:
        if message.method in ("notifications/tasks", "notifications/tasks/status"):
            yield Sighting(exchange, message.at, message.params, exchange.sent_at)
    if exchange.result is None or exchange.received_at is None:
        return
    shown: Iterable[Any] = ()
    if exchange.method == "tools/call":
        shown = (exchange.result.get("task", exchange.result),)
    elif exchange.method == "tasks/list":
        shown = exchange.result.get("tasks", ())
    elif exchange.method == "tasks/get" or (exchange.method == "tasks/cancel" and "status" in exchange.result):
        shown = (exchange.result,)
    for task in shown:
        if "taskId" in task:
            yield Sighting(exchange, exchange.received_at, task, exchange.sent_at)


def canonical(value: object) -> str:
    """Return a text that is equal for equal JSON."""
    return json.dumps(value, sort_keys=True)
