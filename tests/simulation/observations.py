"""What task bodies observe in a simulation, and what they must never observe."""

import itertools
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from raincheck.core.values import Json
from tests.simulation.loop import Lane
from tests.simulation.processes import MAX_SKEW, ProcessClock

TaskKey = tuple[str, str]
"""A task's id, and a name in its plan."""


@dataclass
class Observations:
    """What the bodies of a run have observed, and the promises that this breaks."""

    violations: list[str] = field(default_factory=list[str])
    running: dict[tuple[str, int], Lane] = field(default_factory=dict[tuple[str, int], Lane])
    """The bodies that have started and not ended, by task and attempt. Those of killed processes never end."""
    bodies: int = 0
    finished_steps: dict[TaskKey, tuple[int, Json]] = field(default_factory=dict[TaskKey, tuple[int, Json]])
    """The first attempt to which a step returned, and what it returned."""
    answers: dict[TaskKey, Json] = field(default_factory=dict[TaskKey, Json])
    children: dict[TaskKey, Json] = field(default_factory=dict[TaskKey, Json])
    variables: dict[TaskKey, int] = field(default_factory=dict[TaskKey, int])
    """The latest attempt that set a variable. The value is the attempt's number."""
    sleeps: dict[TaskKey, datetime] = field(default_factory=dict[TaskKey, datetime])
    clock_is_set: bool = False
    """Whether the machine's clock was set, so that sleeps can't be measured by it."""
    on_step: Callable[[str, Lane], object] = lambda _, __: None
    """Called with the task of each step that starts, and its process."""
    _tokens: "itertools.count[int]" = field(default_factory=itertools.count)

    def violate(self, promise: str, text: str) -> None:
        self.violations.append(f"{promise}: {text}")

    def expect_same(self, promise: str, seen: dict[TaskKey, Json], key: TaskKey, value: Json) -> None:
        """Check that a value is always the same."""
        first = seen.setdefault(key, value)
        if first != value:
            self.violate(promise, f"{key} was {first!r}, and later {value!r}")

    def new_token(self) -> str:
        return f"token {next(self._tokens)}"

    def is_running(self, task_id: str, attempt: int) -> bool:
        """Return whether the body of an attempt is running in a process that lives."""
        lane = self.running.get((task_id, attempt))
        return lane is not None and not lane.is_dead


@dataclass
class BodyRun:
    """The body of one attempt, as it observes itself."""

    all: Observations
    tool: str
    task_id: str
    attempt: int
    lane: Lane
    clock: ProcessClock

    @contextmanager
    def observed(self, variables: Mapping[str, Json]) -> Generator[None]:
        """Observe the body from its start to its end."""
        self._check_start(variables)
        key = self.task_id, self.attempt
        self.all.bodies += 1
        self.all.running[key] = self.lane
        try:
            yield
        finally:
            del self.all.running[key]

    def _check_start(self, variables: Mapping[str, Json]) -> None:
        if self.tool == "once" and any(
            task_id == self.task_id and not lane.is_dead for (task_id, _), lane in self.all.running.items()
        ):
            self.all.violate("survives", f"{self.task_id} must not run twice, and runs in two attempts at once")
        for (task_id, name), attempt in self.all.variables.items():
            found = variables.get(name)
            # A later attempt may have stored its value without learning that it had.
            is_lost = not isinstance(found, int) or found < attempt
            if task_id == self.task_id and attempt < self.attempt and is_lost:
                text = f"attempt {attempt} of {task_id} set {name}, and attempt {self.attempt} sees {found} there"
                self.all.violate("survives", text)

    def step_started(self, name: str) -> str:
        """Note that the function of a step was called. Returns a value that no other call returns."""
        finished = self.all.finished_steps.get((self.task_id, name))
        if finished is not None and finished[0] <= self.attempt:
            text = f"step {name} of {self.task_id} returned to attempt {finished[0]} and ran again in {self.attempt}"
            self.all.violate("survives", text)
        self.all.on_step(self.task_id, self.lane)
        return self.all.new_token()

    def step_finished(self, name: str, value: Json) -> None:
        attempt, first = self.all.finished_steps.setdefault((self.task_id, name), (self.attempt, value))
        if first != value:
            text = f"step {name} of {self.task_id} returned {first!r} to attempt {attempt}, and {value!r} to another"
            self.all.violate("survives", text)

    def sleep_started(self, name: str) -> None:
        self.all.sleeps.setdefault((self.task_id, name), self.clock.now())

    def sleep_ended(self, name: str, seconds: float) -> None:
        slept = self.clock.now() - self.all.sleeps[self.task_id, name]
        if slept < timedelta(seconds=seconds - 2 * MAX_SKEW) and not self.all.clock_is_set:
            self.all.violate("survives", f"{self.task_id} slept {slept} and not {seconds} s in {name}")

    def answered(self, key: str, answer: Json) -> None:
        self.all.expect_same("survives", self.all.answers, (self.task_id, key), answer)

    def child_ended(self, child_id: str, result: Json) -> None:
        self.all.expect_same("one truth", self.all.children, (self.task_id, child_id), result)

    def variable_set(self, name: str) -> None:
        """Note that a variable was set to the attempt's number."""
        key = self.task_id, name
        self.all.variables[key] = max(self.attempt, self.all.variables.get(key, 0))
