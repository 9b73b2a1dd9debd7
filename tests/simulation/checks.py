"""The promises of a task, judged from the store, from what callers receive, and from what bodies observe.

Each check names the promise that it is about: durable, one truth, survives, cancel, waiting, retention.
"""

import zlib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import datetime

from raincheck.core.lifecycle import Event
from raincheck.core.owner import Owner
from raincheck.core.policies import OnInterrupt
from raincheck.core.records import HistoryEntry, Task, TaskId, View
from raincheck.core.values import Json, Payload, decode
from raincheck.testing.invariants import EARLIEST, InvariantViolation, check_invariants
from tests.simulation.loop import Lane, SimulatedLoop
from tests.simulation.observations import Observations
from tests.simulation.store import EVERYTHING, Disk, now_or_fail

PROMPT = 1.5
"""Seconds in which waiters are woken and stopped work ends, if nothing is late, lost, paused or cut off."""

BODY_ENDS_BEFORE = frozenset({Event.PARK, Event.YIELD, Event.RETRY, Event.COMPLETE, Event.FAIL})
"""Events that an attempt writes after its body has ended."""


class Checks:
    """Follows a run, and collects the violations."""

    def __init__(
        self,
        loop: SimulatedLoop,
        disk: Disk,
        observed: Observations,
        *,
        is_prompt: bool,
        latest: Callable[[], datetime],
    ) -> None:
        self._loop = loop
        self._disk = disk
        self._observed = observed
        self._is_prompt = is_prompt
        self._latest = latest
        self._stored: dict[str, Task] = {}
        self._ended: dict[TaskId, Task] = {}
        self._ends_seen: dict[str, tuple[int, str, Json]] = {}
        self._id_of_key: dict[tuple[str, str], str] = {}
        self._hashes: dict[str, int] = {}
        self._state = 0
        self._waits: list[tuple[str, float, Lane]] = []
        self.ended_at: dict[str, float] = {}
        self.states: set[int] = set()
        """Hashes of the states that the store was in."""
        self.commits = 0
        disk.on_change = self._on_change
        observed.on_step = self._on_step

    # Each commit.

    def _on_change(self, task_id: TaskId) -> None:
        before, task = self._stored.get(task_id), self._disk.task(task_id)
        self.commits += 1
        if task is None:
            self._check_pruned(before)
        else:
            entries = now_or_fail(
                self._disk.memory.history(
                    task_id, EVERYTHING, now=EARLIEST, after=0 if before is None else before.entries
                )
            )
            for entry in entries:
                self._check_entry(task, entry)
            self._stored[task_id] = task
            self._disk.latest = max(self._disk.latest, task.updated_at)
            if task.is_terminal:
                self.ended_at.setdefault(task_id, self._loop.time())
        self._hash(task_id, task)

    def _hash(self, task_id: str, task: Task | None) -> None:
        """Update the hash of the store's state: what matters about each task, without ids and times."""
        parts = task and (
            task.tool.name,
            task.phase,
            task.attempt_number,
            task.failures,
            task.signals,
            task.open_inputs,
            task.pausing,
            task.due_at is None,
            task.parent_id is None,
            task.entries,
        )
        new = 0 if parts is None else zlib.crc32(repr(parts).encode()) * 0x9E3779B97F4A7C15 + 1
        self._state = (self._state + new - self._hashes.get(task_id, 0)) % (1 << 64)
        self._hashes[task_id] = new
        self.states.add(self._state)
        self._loop.record(self._state)

    def _check_pruned(self, before: Task | None) -> None:
        if before is None or not before.is_terminal or not before.is_expired(self._latest()):
            self._violate("retention", f"it was deleted before it expired: {_describe(before)}")

    def _check_entry(self, task: Task, entry: HistoryEntry) -> None:
        by_attempt = entry.event in BODY_ENDS_BEFORE and entry.actor != "sweeper"
        if by_attempt and self._observed.is_running(task.id, entry.attempt):
            self._violate("waiting", f"{task.id} is {task.phase} while the body of attempt {entry.attempt} runs")
        if entry.event is Event.INTERRUPT and task.retry.on_interrupt is OnInterrupt.FAIL:
            self._violate("survives", f"{task.id} must not run twice, and was interrupted without failing")
        if entry.event is Event.COMPLETE and not task.is_error:
            outcome = now_or_fail(self._disk.memory.view(task.id, EVERYTHING, now=EARLIEST)).outcome
            writer = _attempt_of(outcome)
            if writer != entry.attempt:
                text = f"attempt {entry.attempt} of {task.id} completed with the result of attempt {writer}"
                self._violate("one truth", text)

    def _on_step(self, task_id: str, lane: Lane) -> None:
        late = self._loop.time() - self.ended_at.get(task_id, self._loop.time())
        if self._is_prompt and not lane.was_paused and late > PROMPT:
            self._violate("cancel", f"{task_id} started a step {late:.1f} s after its end")

    # Each reply.

    def submitted(self, task: Task, owner: Owner, key: str | None) -> None:
        """Check what a process replies to a submission."""
        stored = self._stored.get(task.id)
        if stored is None:
            self._violate("durable", f"{task.id} was returned before it was stored")
            return
        if key is not None:
            earlier = self._stored.get(self._id_of_key.get((owner.key, key), ""))
            if earlier is not None and earlier.id != task.id and not earlier.is_expired(self._latest()):
                self._violate("durable", f"key {key} gave {earlier.id}, and then {task.id}")
            self._id_of_key[owner.key, key] = task.id

    def viewed(self, view: View, read_at: datetime) -> None:
        """Check what a process replies to a read that it started at this time of its clock."""
        task = view.task
        if task.is_expired(read_at):
            self._violate("retention", f"{task.id} expired at {task.expires_at} and was read at {read_at}")
        self._check_end(view)

    @contextmanager
    def waiting(self, task_id: str, lane: Lane) -> Generator[Callable[[View], None]]:
        """Check what a process replies to a caller that waits for the end, and when. Yields what takes the reply."""
        wait = task_id, self._loop.time(), lane
        self._waits.append(wait)
        try:
            yield self._check_end
            self._check_prompt(wait)
        finally:
            self._waits.remove(wait)

    def _check_prompt(self, wait: tuple[str, float, Lane]) -> None:
        task_id, started_at, lane = wait
        late = self._loop.time() - max(started_at, self.ended_at.get(task_id, self._loop.time()))
        if self._is_prompt and not lane.was_paused and not lane.is_dead and late > PROMPT:
            self._violate("survives", f"a waiter learns {late:.1f} s late, or not at all, that {task_id} has ended")

    def not_found(self, task_id: str) -> None:
        """Check that a task that its owner does not find has expired."""
        stored = self._stored.get(task_id)
        if stored is None or not stored.is_expired(self._latest()):
            self._violate("retention", f"{task_id} is not found, but has not expired: {_describe(stored)}")

    def cancelled(self, task: Task) -> None:
        """Check what a process replies to a cancellation."""
        if task.phase != "cancelled":
            self._violate("cancel", f"{task.id} was cancelled and is {task.phase}")
        self._check_end(View(task, None, ()))

    def refused(self, task_id: str) -> None:
        """Check that a task whose change was refused because it has ended has ended."""
        stored = self._stored.get(task_id)
        if stored is None or not stored.is_terminal:
            self._violate("one truth", f"a change of {task_id} was refused, but it has not ended: {_describe(stored)}")

    def _check_end(self, view: View) -> None:
        task = view.task
        if not task.is_terminal:
            if task.id in self._ends_seen and task.version > self._ends_seen[task.id][0]:
                self._violate("one truth", f"{task.id} lives after its end")
            return
        end = task.version, str(task.phase), None if view.outcome is None else decode(view.outcome)
        first = self._ends_seen.setdefault(task.id, end)
        if first != end:
            self._violate("one truth", f"{task.id} ended as {first}, and later as {end}")
        granted, kept = task.retention.ttl, task.retention.keep
        if task.finished_at is None or task.expires_at is None or task.expires_at < task.finished_at + kept:
            self._violate("retention", f"{task.id} is not kept for {kept}: {_describe(task)}")
        elif granted is not None and task.expires_at < task.created_at + granted:
            self._violate("retention", f"{task.id} was granted a ttl of {granted}: {_describe(task)}")

    # At certain moments, and at the end.

    def check_store(self) -> None:
        """Check the invariants of the store."""
        try:
            now_or_fail(check_invariants(self._disk.memory, self._ended))
        except InvariantViolation as error:
            self._observed.violations += [f"invariant: {violation}" for violation in error.violations]

    @property
    def has_live_tasks(self) -> bool:
        return any(not task.is_terminal for task in self._stored.values())

    def check_end(self) -> None:
        """Check what must hold when all processes have run without any trouble for a while."""
        for task in self._stored.values():
            if not task.is_terminal:
                self._violate("survives", f"{task.id} ({task.tool.name}) does not end: {_describe(task)}")
        for (task_id, attempt), lane in self._observed.running.items():
            if not lane.is_dead:
                self._violate("cancel", f"the body of attempt {attempt} of {task_id} still runs")
        for wait in self._waits:
            self._check_prompt(wait)
        for (task_id, key), answer in self._observed.answers.items():
            self._check_answer(task_id, key, answer)
        self.check_store()

    def _check_answer(self, task_id: str, key: str, seen: Json) -> None:
        if self._disk.task(task_id) is None:
            return
        journal = now_or_fail(self._disk.memory.journal(TaskId(task_id), EVERYTHING, now=EARLIEST))
        answer = journal.answer_to(key)
        stored = None if answer is None else decode(answer)
        if stored != seen:
            self._violate("survives", f"{task_id} received {seen!r} for {key}, but {stored!r} is stored")

    def _violate(self, promise: str, text: str) -> None:
        self._observed.violate(promise, text)


def _attempt_of(outcome: Payload | None) -> Json:
    result = None if outcome is None else decode(outcome)
    return result.get("attempt") if isinstance(result, Mapping) else None


def _describe(task: Task | None) -> str:
    if task is None:
        return "it is not stored"
    fields = ("phase", "attempt_number", "signals", "open_inputs", "pausing", "due_at", "deadline_at", "expires_at")
    return ", ".join(f"{name} {getattr(task, name)}" for name in fields)
