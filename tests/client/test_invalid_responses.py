"""Servers that answer with what is no answer: that is told, and nothing is lost for an odd field."""

from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from raincheck.client import InvalidResponse, TaskCancelled, TaskProgress
from raincheck.core.lifecycle import Status
from raincheck.errors import TaskNotFound
from tests.support.client.callers import User, text_of
from tests.support.client.fake_servers import DONE, WORKING, Fake
from tests.support.client.transports import SkippingClock

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])


NO_TASKS: list[Any] = [{}, {"taskId": ""}, {"taskId": 7}, {"taskId": None}, {"taskId": ["t"]}]


@pytest.mark.parametrize("created", NO_TASKS)
async def test_a_task_without_an_id_is_told_to_be_none(created: dict[str, Any]) -> None:
    older, newer = Fake("2025-11-25"), Fake()
    newer.says("tools/call", {"resultType": "task", "status": "working", **created})
    for task in (created, "nothing"):
        older.says("tools/call", {"task": task})
        for fake in (older, newer):
            async with fake.client() as client:
                with pytest.raises(InvalidResponse, match="ill-formed"):
                    await client.call("work")


@pytest.mark.parametrize(
    "odd",
    [
        {"status": "brewing"},
        {"status": 7},
        {"status": ["working"]},
        {"status": None},
        {"statusMessage": 7},
        {"pollInterval": "soon", "pollIntervalMs": "soon"},
        {"ttl": -1.5, "ttlMs": "forever", "createdAt": None, "lastUpdatedAt": 7},
    ],
)
@BOTH
async def test_a_task_is_not_lost_for_an_odd_field(version: str, odd: dict[str, Any]) -> None:
    fake, task = Fake(version), {**WORKING, **odd}
    fake.says("tools/call", {"task": task} if version == "2025-11-25" else {"resultType": "task", **task})
    later = {name: value for name, value in odd.items() if name != "status"}
    fake.ends({**WORKING, **later})
    async with fake.client(clock=SkippingClock()) as client:
        assert text_of(await client.call_tool("work")) == "done"


@pytest.mark.parametrize(
    "shown", [{}, {"status": None}, {"status": "done"}, {"status": 7}, {"taskId": "u", "status": "working"}]
)
@BOTH
async def test_a_task_that_is_shown_wrongly_is_told_to_be(version: str, shown: dict[str, Any]) -> None:
    fake = Fake(version)
    fake.shows(shown)
    async with fake.client() as client:
        handle = await client.call("work")
        with pytest.raises(InvalidResponse, match=r"ill-formed|tells of 'u'"):
            await handle.result()
        fake.ends()
        assert text_of(await handle.result()) == "done"


@pytest.mark.parametrize("asked", [{}, {"q": {}}, {"q": {"method": "make/coffee"}}, {"q": {"method": 7}}])
async def test_a_question_that_is_none_is_for_whoever_holds_the_handle(asked: dict[str, Any]) -> None:
    fake = Fake()
    fake.shows({"status": "input_required", "inputRequests": asked})
    async with fake.client(clock=SkippingClock(), elicitation_callback=User().answer) as client:
        handle = await client.call("work")
        with pytest.raises(Exception, match=r"asks \(q" if asked else ".*"):
            await handle.result(timeout=60)


async def test_a_question_without_words_is_told_to_be_ill_formed() -> None:
    fake = Fake()
    fake.shows({"status": "input_required", "inputRequests": {"q": {"method": "elicitation/create", "params": 7}}})
    async with fake.client(clock=SkippingClock(), elicitation_callback=User().answer) as client:
        with pytest.raises(InvalidResponse, match="'q' is ill-formed"):
            await client.call_tool("work")


@pytest.mark.parametrize("result", [None, {}, {"content": 7}, {"content": [{"type": "smell"}]}])
@BOTH
async def test_a_result_that_is_none_is_told_to_be(version: str, result: Any) -> None:
    fake = Fake(version)
    fake.shows({"status": "completed", **({} if result is None else {"result": result})})
    fake.says("tasks/result", result or {})
    async with fake.client() as client:
        with pytest.raises(InvalidResponse, match=r"ill-formed|tells no result"):
            await client.call_tool("work")


async def test_a_failure_without_words_is_told_as_one() -> None:
    older, newer = Fake("2025-11-25"), Fake()
    older.shows({"status": "failed", "statusMessage": "it broke"})
    older.says("tasks/result", {"_meta": {}})
    async with older.client() as client:
        with pytest.raises(MCPError, match="it broke"):
            await client.call_tool("work")
    newer.shows({"status": "failed"})
    async with newer.client() as client:
        with pytest.raises(InvalidResponse, match="tells no result"):
            await client.call_tool("work")
    newer.shows({"status": "cancelled"})
    async with newer.client() as client:
        with pytest.raises(TaskCancelled):
            await client.call_tool("work")


@pytest.mark.parametrize("content", [{}, {"structuredContent": {"sum": "three"}}, {"structuredContent": None}])
@BOTH
async def test_a_result_that_is_not_what_the_tool_promised_is_told_to_be(version: str, content: dict[str, Any]) -> None:
    promised = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    fake, result = Fake(version, tool={"outputSchema": promised}), {**DONE, **content}
    fake.shows({"status": "completed", "result": {**result, "resultType": "complete"}})
    fake.says("tasks/result", result)
    async with fake.client() as client:
        handle = await client.call("work")
        with pytest.raises(InvalidResponse, match=r"structured content"):
            await handle.result()
        # One that is answered at once is checked too.
        fake.says("tools/call", {**result, "resultType": "complete"})
        with pytest.raises(InvalidResponse, match=r"structured content"):
            await client.call("work")


async def test_progress_that_is_none_is_left_out() -> None:
    for told in (7, {}, {"done": "half"}, {"done": True}, {"done": float("nan")}):
        fake = Fake()
        fake.shows({**WORKING, "_meta": {"raincheck/progress": told}})
        async with fake.client() as client:
            update = await (await client.call("work")).poll()
            assert update is not None
            assert update.progress is None
    fake = Fake()
    fake.shows({**WORKING, "_meta": {"raincheck/progress": {"done": 1, "total": "many"}}})
    async with fake.client() as client:
        update = await (await client.call("work")).poll()
        assert update is not None
        assert update.progress == TaskProgress(1)


async def test_words_about_a_task_that_name_no_tools_are_a_result() -> None:
    fake = Fake("2025-06-18")
    tools: dict[str, str] = {}
    for meta in ({"raincheck/task": "t"}, {"raincheck/task": 7, "raincheck/tools": tools}, {"raincheck/tools": tools}):
        fake.says("tools/call", {**DONE, "_meta": meta})
        async with fake.client() as client:
            assert (await client.call("work")).task_id is None


@pytest.mark.parametrize(
    "told", [None, {}, {"task_id": "t"}, {"task_id": "t", "status": "brewing"}, {"task_id": "u", "status": "working"}]
)
async def test_words_about_a_task_that_make_no_sense_are_told_to_be(told: dict[str, Any] | None) -> None:
    fake = Fake("2025-06-18")
    tools = {"status": "status", "wait": "wait", "result": "result"}
    fake.says(
        "tools/call",
        {**DONE, "_meta": {"raincheck/task": "t", "raincheck/tools": tools}},
        {**DONE, **({} if told is None else {"structuredContent": told})},
    )
    async with fake.client(clock=SkippingClock()) as client:
        handle = await client.call("work")
        assert handle.task_id == "t"
        with pytest.raises(InvalidResponse, match=r"ill-formed|tells of 'u'"):
            await handle.result()
        with pytest.raises(TaskNotFound):
            await handle.cancel()


async def test_an_update_of_a_working_task_says_nothing_of_an_end() -> None:
    fake = Fake()
    fake.shows(WORKING)
    async with fake.client() as client:
        update = await (await client.call("work")).poll()
        assert update is not None
        assert (update.status, update.is_ended, update.result, update.error) == (Status.WORKING, False, None, None)
