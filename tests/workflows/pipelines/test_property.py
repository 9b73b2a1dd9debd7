"""Random small pipelines have the same result in the engine as in a model in plain Python."""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from raincheck.core.change import Change
from raincheck.core.records import View
from raincheck.engine import Settings
from raincheck.stores.base import Store
from raincheck.testing import check_invariants
from tests.support.workflows.harness import WorkflowHarness, result_of
from tests.support.workflows.step_functions import called

PARK_AT_ONCE = Settings(lease=5.0, park_after=0.001, grace=2.0, progress_interval=0.02)
"""Parks at every wait, so that bodies start from the beginning many times."""


@dataclass(frozen=True)
class DrawnStep:
    """A step of a random pipeline."""

    id: str
    needs: tuple[str, ...]
    kind: str
    condition: bool | None
    items: tuple[int, ...] | None
    rate: float
    continues: bool

    def to_yaml(self) -> dict[str, Any]:
        values = "[" + ", ".join(f"steps.{need}.result" for need in self.needs) + "]"
        item = "item" if self.items is not None else "1"
        who = self.id if self.items is None else self.id + "[{{ index }}]"
        step: dict[str, Any] = {"id": self.id, "needs": list(self.needs), "min_success_rate": self.rate}
        if self.items is None:
            del step["min_success_rate"]
        else:
            step |= {"for_each": list(self.items), "max_parallel": 2}
        if self.condition is not None:
            step["if"] = self.condition
        if self.continues:
            step["on_error"] = "continue"
        match self.kind:
            case "set":
                step["set"] = {"of": f"{{{{ {values} }}}}", "is": f"{{{{ 6 // {item} }}}}"}
            case "python":
                step |= {
                    "python": "tests.support.workflows.step_functions:divide",
                    "with": {"by": f"{{{{ {item} }}}}", "who": who},
                }
            case "fail":
                step["set"] = "{{ 1 // 0 }}"
            case _:
                step["sleep"] = 0.002
        return step


@st.composite
def pipelines(draw: st.DrawFn) -> list[DrawnStep]:
    steps: list[DrawnStep] = []
    for number in range(draw(st.integers(1, 6))):
        ids = [step.id for step in steps]
        needs = draw(st.lists(st.sampled_from(ids), unique=True, max_size=3)) if ids else []
        steps.append(
            DrawnStep(
                id=f"s{number}",
                needs=tuple(needs),
                kind=draw(st.sampled_from(["set", "set", "python", "sleep", "fail"])),
                condition=draw(st.sampled_from([None, None, True, False])),
                items=draw(st.none() | st.lists(st.integers(0, 3), max_size=3).map(tuple)),
                rate=draw(st.sampled_from([0, 0.5, 1])),
                continues=draw(st.booleans()),
            )
        )
    return steps


class Model:
    """The expected result of a pipeline, computed without an engine."""

    def __init__(self, steps: list[DrawnStep]) -> None:
        self.results: dict[str, tuple[str, Any]] = {}
        """Status and result of each step that can be reached."""
        self.fatal: set[str] = set()
        """Steps of which one must end the pipeline."""
        for step in steps:
            if all(need in self.results and need not in self.fatal for need in step.needs):
                self.results[step.id] = self._run(step)
                if self.results[step.id][0] == "failed" and not step.continues:
                    self.fatal.add(step.id)

    def _run(self, step: DrawnStep) -> tuple[str, Any]:
        if step.condition is False:
            return "skipped", None
        if step.items is None:
            ok, result = self._once(step, 1)
            return ("completed" if ok else "failed"), result
        outcomes = [self._once(step, item) for item in step.items]
        successes = sum(ok for ok, _ in outcomes)
        is_enough = successes >= step.rate * len(outcomes)
        return ("completed" if is_enough else "failed"), [result for _, result in outcomes]

    def _once(self, step: DrawnStep, item: int) -> tuple[bool, Any]:
        match step.kind:
            case "set" if item:
                return True, {"of": [self.results[need][1] for need in step.needs], "is": 6 // item}
            case "python" if item:
                return True, 6 // item
            case "sleep":
                return True, None
            case _:
                return False, None


def file_text(steps: list[DrawnStep], max_parallel: int) -> str:
    output = {step.id: [f"{{{{ steps.{step.id}.{key} }}}}" for key in ("status", "result")] for step in steps}
    flow = {"max_parallel": max_parallel, "steps": [step.to_yaml() for step in steps], "output": output}
    return yaml.safe_dump({"raincheck": 1, "workflows": {"flow": flow}}, sort_keys=False)


class CountingStore:
    """A store in front of another one, with an event that is set after a number of changes."""

    def __init__(self, store: Store, changes: int) -> None:
        self._store = store
        self._remaining = changes
        self.is_enough = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, changes: Sequence[Change]) -> None:
        await self._store.commit(changes)
        self._remaining -= 1
        if self._remaining <= 0:
            self.is_enough.set()


async def run_interrupted(text: str, cuts: list[int]) -> View:
    """Run a pipeline to its end, and interrupt its engine after each of these numbers of changes."""
    with tempfile.TemporaryDirectory() as folder:
        workflow_harness = WorkflowHarness(Path(folder))
        async with workflow_harness.running(text, PARK_AT_ONCE, works=False) as engine:
            task = await engine.submit("flow")
        for changes in cuts:
            store = CountingStore(workflow_harness.store, changes)
            async with WorkflowHarness(Path(folder), cast("Store", store)).running(settings=PARK_AT_ONCE) as engine:
                end = asyncio.ensure_future(engine.wait(task.id))
                enough = asyncio.ensure_future(store.is_enough.wait())
                await asyncio.wait([end, enough], return_when=asyncio.FIRST_COMPLETED)
                end.cancel()
                enough.cancel()
        async with workflow_harness.running(settings=PARK_AT_ONCE) as engine:
            view = await asyncio.wait_for(engine.wait(task.id), 20)
        await check_invariants(workflow_harness.store)
    return view


@given(steps=pipelines(), max_parallel=st.integers(1, 3), cuts=st.lists(st.integers(1, 8), max_size=3))
@settings(max_examples=40)
def test_a_pipeline_matches_the_model_however_often_it_is_interrupted(
    steps: list[DrawnStep], max_parallel: int, cuts: list[int]
) -> None:
    model = Model(steps)
    called.clear()
    view = asyncio.run(run_interrupted(file_text(steps, max_parallel), cuts))
    result = cast("Any", result_of(view))
    if model.fatal:
        assert view.task.is_error, result
        assert any(result["message"].startswith(f"step {step!r} failed") for step in model.fatal), result
    else:
        assert not view.task.is_error, result
        assert result == {step: list(end) for step, end in model.results.items()}
    assert all(times <= 1 + len(cuts) for times in called.values()), "only interrupted steps run again"
