"""Random small pipelines, run by the engine and by a few lines of plain Python: both must come to the same end."""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from raincheck.core.change import Change
from raincheck.core.records import View
from raincheck.engine import Settings
from raincheck.stores.base import Store
from raincheck.testing import check_invariants
from tests.support.workflows.harness import Workshop, said
from tests.support.workflows.step_functions import called

pytestmark = pytest.mark.timeout(120)

IMPATIENT = Settings(lease=5.0, park_after=0.001, grace=2.0, progress_interval=0.02)
"""Parks at every wait, so that bodies are run from their beginnings again and again."""


@dataclass(frozen=True)
class Drawn:
    """A step of a random pipeline."""

    id: str
    needs: tuple[str, ...]
    kind: str
    condition: bool | None
    items: tuple[int, ...] | None
    rate: float
    continues: bool

    def written(self) -> dict[str, Any]:
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
def pipelines(draw: st.DrawFn) -> list[Drawn]:
    steps: list[Drawn] = []
    for number in range(draw(st.integers(1, 6))):
        ids = [one.id for one in steps]
        needs = draw(st.lists(st.sampled_from(ids), unique=True, max_size=3)) if ids else []
        steps.append(
            Drawn(
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
    """What a pipeline comes to: no engine, no order, no time."""

    def __init__(self, steps: list[Drawn]) -> None:
        self.seen: dict[str, tuple[str, Any]] = {}
        """Status and result of each step that can be reached."""
        self.fatal: set[str] = set()
        """Steps of which one must end the pipeline."""
        for step in steps:
            if all(need in self.seen and need not in self.fatal for need in step.needs):
                self.seen[step.id] = self._run(step)
                if self.seen[step.id][0] == "failed" and not step.continues:
                    self.fatal.add(step.id)

    def _run(self, step: Drawn) -> tuple[str, Any]:
        if step.condition is False:
            return "skipped", None
        if step.items is None:
            ok, result = self._once(step, 1)
            return ("completed" if ok else "failed"), result
        all_of_them = [self._once(step, item) for item in step.items]
        good = sum(ok for ok, _ in all_of_them)
        is_enough = good >= step.rate * len(all_of_them)
        return ("completed" if is_enough else "failed"), [result for _, result in all_of_them]

    def _once(self, step: Drawn, item: int) -> tuple[bool, Any]:
        match step.kind:
            case "set" if item:
                return True, {"of": [self.seen[need][1] for need in step.needs], "is": 6 // item}
            case "python" if item:
                return True, 6 // item
            case "sleep":
                return True, None
            case _:
                return False, None


def written(steps: list[Drawn], max_parallel: int) -> str:
    output = {one.id: [f"{{{{ steps.{one.id}.{what} }}}}" for what in ("status", "result")] for one in steps}
    flow = {"max_parallel": max_parallel, "steps": [one.written() for one in steps], "output": output}
    return yaml.safe_dump({"raincheck": 1, "workflows": {"flow": flow}}, sort_keys=False)


class Interrupted:
    """A store in front of another, which tells when so many changes have been kept."""

    def __init__(self, store: Store, changes: int) -> None:
        self._store = store
        self._left = changes
        self.is_enough = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, changes: Sequence[Change]) -> None:
        await self._store.commit(changes)
        self._left -= 1
        if self._left <= 0:
            self.is_enough.set()


async def ended(text: str, cuts: list[int]) -> View:
    """How it ends, with an engine that is stopped after so many changes, and others that go on."""
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(Path(folder))
        async with workshop.working(text, IMPATIENT, works=False) as engine:
            task = await engine.submit("flow")
        for changes in cuts:
            store = Interrupted(workshop.store, changes)
            async with Workshop(Path(folder), cast("Store", store)).working(settings=IMPATIENT) as engine:
                end = asyncio.ensure_future(engine.wait(task.id))
                enough = asyncio.ensure_future(store.is_enough.wait())
                await asyncio.wait([end, enough], return_when=asyncio.FIRST_COMPLETED)
                end.cancel()
                enough.cancel()
        async with workshop.working(settings=IMPATIENT) as engine:
            view = await asyncio.wait_for(engine.wait(task.id), 20)
        await check_invariants(workshop.store)
    return view


@given(steps=pipelines(), max_parallel=st.integers(1, 3), cuts=st.lists(st.integers(1, 8), max_size=3))
@settings(max_examples=40)
def test_a_pipeline_comes_to_what_plain_python_comes_to_however_often_it_is_interrupted(
    steps: list[Drawn], max_parallel: int, cuts: list[int]
) -> None:
    model = Model(steps)
    called.clear()
    view = asyncio.run(ended(written(steps, max_parallel), cuts))
    result = cast("Any", said(view))
    if model.fatal:
        assert view.task.is_error, result
        assert any(result["message"].startswith(f"step {step!r} failed") for step in model.fatal), result
    else:
        assert not view.task.is_error, result
        assert result == {step: list(end) for step, end in model.seen.items()}
    assert all(times <= 1 + len(cuts) for times in called.values()), "only what was cut off is done again"
