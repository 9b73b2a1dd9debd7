"""A store that an earlier raincheck wrote: it opens, and its tasks continue where they were."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from raincheck import Engine, Settings, TaskContext, Toolbox, open_store
from raincheck.clock import SystemClock
from raincheck.core.lifecycle import Phase
from raincheck.core.records import TaskId
from raincheck.core.values import Json, decode
from raincheck.workflows import load_workflows

pytestmark = pytest.mark.anyio

DUMP = Path(__file__).with_name("older_store.sql")

WRITTEN_AT = datetime(2026, 11, 19, 4, 12, 56, tzinfo=UTC)

QUICK = TaskId("01a1f201f44fd2dd605edd64f36776917935e1a0474e")
ASK = TaskId("01a1f201f455fb482fe60075c09ca358ad0ee6a10b05")
PUBLISH = TaskId("01a1f201f456cdbf25d7197d560fda4fdf6d0956f375")
REVIEW = TaskId("01a1f201f457939f0a8ecc8b0f4f9eb2a8c39072c69c")
REPORT = TaskId("01a1f201f4593be85fbe2ce39dbca94ded1f8f35e84b")
QUEUED = (
    TaskId("01a1f201f48f79f0125cfd391d8d1fca6d9208c92e25"),
    TaskId("01a1f201f49071664a8bcf516371ccf31c9d4616f5a8"),
)

WORKFLOWS = """raincheck: 1
workflows:
  publish:
    input: {year: {type: integer}}
    steps:
      - {id: rows, set: "{{ input.year * 2 }}"}
      - {id: agreed, ask: {message: "Publish {{ steps.rows.result }}?", schema: {ok: {type: boolean}}}}
    output: "{{ steps.rows.result }}"
  review:
    states:
      draft: {transitions: {submit: {to: reviewed}}}
      reviewed: {transitions: {approve: {to: published}}}
      published: {kind: success}
"""


class ClockSince(SystemClock):
    """A clock that runs as the real one does, from another moment on: what the store keeps for a day is still there."""

    def __init__(self, start: datetime) -> None:
        super().__init__()
        self._offset = start - super().now()

    def now(self) -> datetime:
        return super().now() + self._offset


loaded: list[int] = []


async def load(part: int) -> str:
    loaded.append(part)
    return f"part {part}"


async def report(year: int, task: TaskContext) -> list[str]:
    return [f"{year}", *[await task.step("load", load, part) for part in range(3)]]


async def ask(number: int, task: TaskContext) -> int:
    reply = await task.elicit("Go on?", {"type": "object", "properties": {"ok": {"type": "boolean"}}})
    return number if reply.ok else -1


async def quick(number: int) -> int:
    return number * 2


async def queued(number: int) -> int:
    return number


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    with closing(sqlite3.connect(tmp_path / "tasks.db")) as connection:
        connection.executescript(DUMP.read_text(encoding="utf-8"))
    (tmp_path / "flows.yaml").write_text(WORKFLOWS, encoding="utf-8")
    toolbox = Toolbox()
    for function in (report, ask, quick):
        toolbox.tool(function)
    toolbox.tool(concurrency=1)(queued)
    for definition in (await asyncio.to_thread(load_workflows, tmp_path / "flows.yaml")).definitions.values():
        toolbox.add(definition.tool())
    # A minute later, so that the lease of the killed server has expired.
    clock = ClockSince(WRITTEN_AT + timedelta(minutes=1))
    settings = Settings(lease=1.0, park_after=0.05)
    async with open_store(tmp_path / "tasks.db") as store:
        engine = Engine(store, toolbox, namespace="reports", settings=settings, clock=clock)
        async with engine:
            yield engine


async def result_of(engine: Engine, task_id: TaskId) -> Json:
    view = await engine.wait(task_id)
    assert view.task.phase is Phase.COMPLETED, (view.task, view.outcome)
    return None if view.outcome is None else decode(view.outcome)


async def test_a_finished_task_still_has_its_result(engine: Engine) -> None:
    assert await result_of(engine, QUICK) == 8


async def test_an_interrupted_task_resumes_without_repeating_its_finished_steps(engine: Engine) -> None:
    loaded.clear()
    assert await result_of(engine, REPORT) == ["2026", "part 0", "part 1", "part 2"]
    assert loaded == [2]


async def test_queued_tasks_run(engine: Engine) -> None:
    assert [await result_of(engine, task_id) for task_id in QUEUED] == [0, 1]


@pytest.mark.parametrize(("task_id", "expected"), [(ASK, 3), (PUBLISH, 4048)], ids=["tool", "pipeline"])
async def test_a_question_can_be_answered(engine: Engine, task_id: TaskId, expected: int) -> None:
    view = await engine.view(task_id)
    (question,) = view.inputs
    await engine.answer(task_id, {question.key: {"action": "accept", "content": {"ok": True}}})
    assert await result_of(engine, task_id) == expected


async def test_an_instance_of_a_state_machine_continues(engine: Engine) -> None:
    for transition in ("submit", "approve"):
        await engine.instances.transition(REVIEW, transition)
    assert (await engine.wait(REVIEW)).task.phase is Phase.COMPLETED
