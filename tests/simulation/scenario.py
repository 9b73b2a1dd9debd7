"""The tools of a simulation. A task's arguments are its plan: a list of actions that is the same in every attempt."""

import asyncio
import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

from raincheck.core.policies import OnInterrupt, Retention, RetryPolicy
from raincheck.core.records import InputKind
from raincheck.core.values import Json
from raincheck.engine.execution.context import TaskContext
from raincheck.engine.tool import make_tool
from raincheck.engine.toolbox import Toolbox
from raincheck.errors import TaskFailed, ToolError
from tests.simulation.loop import LANE
from tests.simulation.observations import BodyRun, Observations
from tests.simulation.processes import ProcessClock

Plan: TypeAlias = list[list[Any]]

RETRIED = RetryPolicy(attempts=4, first_wait=timedelta(seconds=0.2), max_wait=timedelta(seconds=1), jitter=0.0)
NEVER_TWICE = RetryPolicy(attempts=1, on_interrupt=OnInterrupt.FAIL)

DEADLINE = 4.0
"""Seconds that a task of the tool `timed` may take."""

WEIGHTS = {
    "step": 6,
    "work": 3,
    "sleep": 3,
    "ask": 4,
    "child": 3,
    "orphan": 1,
    "fail": 1.5,
    "refuse": 0.3,
    "both": 3,
    "report": 1,
    "set": 3,
    "then": 0.5,
}


def draw_plan(rng: random.Random, *, depth: int = 0, length: int = 5) -> Plan:
    """Draw the actions of a task."""
    kinds = [kind for kind in WEIGHTS if depth < 2 or kind not in ("child", "orphan", "both", "then")]
    chosen = rng.choices(kinds, [WEIGHTS[kind] for kind in kinds], k=rng.randrange(length))
    plan = [_draw_action(rng, kind, depth) for kind in chosen]
    # Work after the last checkpoint: the attempt that resumes there completes the task next.
    return [*plan, ["work", rng.choice([0.0, 0.05, 1.0, 3.0])]] if rng.random() < 0.4 else plan


def _draw_action(rng: random.Random, kind: str, depth: int) -> list[Any]:
    match kind:
        case "step" | "work":
            return [kind, rng.choice([0.0, 0.0, 0.01, 0.3, 2.0])]
        case "sleep":
            return [kind, rng.choice([0.0, 0.1, 0.5, 3.0])]
        case "child" | "orphan":
            return [kind, draw_tool(rng), draw_plan(rng, depth=depth + 1, length=3)]
        case "both":
            return [kind, *(draw_plan(rng, depth=depth + 1, length=3) for _ in range(2))]
        case "fail":
            return [kind, rng.choice([1, 1, 2, 9])]
        case _:
            return [kind]


def draw_tool(rng: random.Random) -> str:
    return rng.choices(["work", "once", "timed"], [7, 1, 2])[0]


def make_toolbox(observed: Observations, clock: ProcessClock, keep: float) -> Toolbox:
    """Return the tools of one process."""
    toolbox, retention = Toolbox(), Retention(keep=timedelta(seconds=keep))

    def make_body(tool: str) -> Callable[..., Any]:
        async def body(plan: list[Any], task: TaskContext, result: Json = None) -> dict[str, Json]:
            del result
            run = BodyRun(observed, tool, task.id, task.attempt, LANE.get(), clock)
            with run.observed(dict(task.variables)):
                return {"attempt": task.attempt, "values": await PlanRunner(task, run).perform(plan, "")}

        return body

    toolbox.add(make_tool(make_body("work"), "work", retry=RETRIED, retention=retention))
    toolbox.add(make_tool(make_body("once"), "once", retry=NEVER_TWICE, retention=retention, concurrency=1))
    toolbox.add(make_tool(make_body("timed"), "timed", retry=RETRIED, retention=retention, timeout=DEADLINE))
    return toolbox


class PlanRunner:
    """Performs the plan of one attempt, and reports what the body observes."""

    def __init__(self, task: TaskContext, run: BodyRun) -> None:
        self._task = task
        self._run = run

    async def perform(self, plan: Sequence[Sequence[Any]], prefix: str) -> list[Json]:
        return [await self._act(f"{prefix}{number}", *action) for number, action in enumerate(plan)]

    async def _act(self, name: str, kind: str, *args: Any) -> Json:
        task = self._task
        match kind:
            case "step":
                return await self._step(name, *args)
            case "work":
                await asyncio.sleep(args[0])
            case "sleep":
                await self._sleep(name, args[0])
            case "ask":
                return await self._ask(name)
            case "child":
                return await self._child(name, *args)
            case "orphan":
                await task.spawn(args[0], {"plan": args[1]}, name=name)
            case "fail":
                if task.attempt <= args[0]:
                    raise RuntimeError(f"attempt {task.attempt} fails")
            case "refuse":
                raise ToolError("refused")
            case "both":
                return await self._both(name, *args)
            case "report":
                await task.progress(task.attempt, message=name)
            case "set":
                await self._set(name)
            case "then":
                if name == "0":
                    await task.then("work", {"plan": []})
            case _:
                raise AssertionError(kind)
        return None

    async def _step(self, name: str, seconds: float) -> Json:
        async def step() -> str:
            value = self._run.step_started(name)
            await asyncio.sleep(seconds)
            return value

        value = await self._task.step(name, step)
        self._run.step_finished(name, value)
        return value

    async def _sleep(self, name: str, seconds: float) -> None:
        self._run.sleep_started(name)
        await self._task.sleep(seconds, name=name)
        self._run.sleep_ended(name, seconds)

    async def _ask(self, name: str) -> Json:
        answer = await self._task.ask(InputKind.ROOTS, {"question": name}, name=name)
        self._run.answered(f"{name}-0", answer)
        return answer

    async def _child(self, name: str, tool: str, plan: Plan) -> Json:
        child = await self._task.spawn(tool, {"plan": plan}, name=name)
        try:
            result: Json = await child.result()
        except TaskFailed as error:
            result = f"failed: {error.phase}"
        self._run.child_ended(child.id, result)
        return result

    async def _both(self, name: str, first: Plan, second: Plan) -> Json:
        async with asyncio.TaskGroup() as group:
            branches = [
                group.create_task(self.perform(plan, f"{name}.{side}.")) for plan, side in ((first, "a"), (second, "b"))
            ]
        return [branch.result() for branch in branches]

    async def _set(self, name: str) -> None:
        await self._task.variables.set(name, self._task.attempt)
        self._run.variable_set(name)
