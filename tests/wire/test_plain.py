"""What callers without tasks are told of one: always with the next call, which text and structured content agree on."""

import json
from typing import Any

import pytest
from slips import asking, at, created, question, running, seen

from raincheck.core.commands import Cancel, Complete, Fail, Note
from raincheck.core.payload import Json, encode
from raincheck.wire.plain import Telling
from raincheck.wire.plain_listing import listed, may_be_task
from raincheck.wire.plain_tools import PlainTools

TELLING = Telling(PlainTools(), 45.0)
TASK = {"task_id": "task-1"}


def text_of(answer: dict[str, Any]) -> str:
    (block,) = answer["content"]
    json.dumps(answer, allow_nan=False)
    return block["text"]


def assert_next(answer: dict[str, Any], tool: str, arguments: Json) -> None:
    assert answer["structuredContent"]["next"] == {"tool": tool, "arguments": arguments}
    assert f"{tool} with {json.dumps(arguments)}" in text_of(answer)
    assert answer["_meta"] == {"raincheck/task": "task-1"}


def test_a_task_that_goes_on_is_waited_for() -> None:
    answer = TELLING.unfinished(seen(running()), at(45), None)
    assert_next(answer, "task_wait", TASK)
    assert "which waits up to 45 s" in text_of(answer)
    assert "left" not in text_of(answer)


def test_how_long_it_has_left_is_told_where_that_is_known_and_what_is_long_is_for_later() -> None:
    assert "about 60 s left" in text_of(TELLING.unfinished(seen(running()), at(45), 60))
    assert "later" not in text_of(TELLING.unfinished(seen(running()), at(45), 450))
    assert "later" in text_of(TELLING.unfinished(seen(running()), at(45), 451))


def test_a_question_is_answered_and_one_that_the_user_has_been_asked_is_waited_for() -> None:
    view = asking(question())
    assert_next(TELLING.unfinished(view, at(1), None), "task_answer", {**TASK, "answer": {"ok": "<boolean>"}})
    assert_next(TELLING.unfinished(view, at(1), None, is_asked=True), "task_wait", TASK)


def test_several_questions_are_told_apart_by_their_keys() -> None:
    answer = TELLING.unfinished(asking(question("one"), question("two")), at(1), None)
    assert_next(answer, "task_answer", {**TASK, "key": "one", "answer": {"ok": "<boolean>"}})
    assert '"key": "two"' in text_of(answer)
    assert [one["key"] for one in answer["structuredContent"]["questions"]] == ["one", "two"]


@pytest.mark.parametrize(
    "command", [Complete(1, encode({})), Fail(1, encode({}), "broke", retryable=False)], ids=["completed", "failed"]
)
def test_a_task_that_has_ended_is_read(command: Any) -> None:
    view = seen(running(), command)
    assert_next(TELLING.status(view, at(45), None), "task_result", TASK)
    assert_next(TELLING.too_late(view.task), "task_result", TASK)


def test_of_a_task_that_was_cancelled_there_is_nothing_to_read() -> None:
    view = seen(created(), Cancel("alice"))
    for answer in (TELLING.status(view, at(45), None), TELLING.too_late(view.task), TELLING.cancelled(view.task)):
        assert "next" not in answer["structuredContent"]
        assert answer["structuredContent"]["status"] == "cancelled"


def test_a_list_names_each_task_and_none_that_is_not_there() -> None:
    answer = TELLING.latest([created(), seen(running(), Note(1, status_message="x" * 1_000)).task], at(45), None)
    assert text_of(answer).count("task-1") == 2
    assert len(text_of(answer)) < 300
    assert text_of(TELLING.latest([], at(0), None)) == "You have no tasks."
    assert len(text_of(TELLING.latest([], at(0), "x" * 10_000))) < 300


def test_the_tools_are_listed_in_few_words_and_by_the_names_they_have() -> None:
    tools = listed(Telling(PlainTools.prefixed("my_"), 45.0))
    assert [tool["name"] for tool in tools] == list(PlainTools.prefixed("my_"))
    assert all(len(tool["description"]) < 150 for tool in tools)
    assert " task_" not in json.dumps(tools).replace("task_id", "")


def test_a_tool_without_an_output_schema_stays_as_it_is() -> None:
    assert may_be_task({"name": "x"}) == {"name": "x"}


def test_what_a_schema_refers_to_is_where_it_says_and_data_stays_data() -> None:
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"a": {"$ref": "#"}},
        "properties": {"$ref": {"$ref": "#/$defs/a"}, "b": {"const": {"$ref": "#/x"}}, "c": {"$ref": "other#/x"}},
    }
    moved = may_be_task({"name": "x", "outputSchema": schema})["outputSchema"]
    assert moved["$schema"] == schema["$schema"]
    own = moved["anyOf"][0]
    assert own["$defs"] == {"a": {"$ref": "#/anyOf/0"}}
    assert own["properties"]["$ref"] == {"$ref": "#/anyOf/0/$defs/a"}
    assert own["properties"]["b"] == {"const": {"$ref": "#/x"}}
    assert own["properties"]["c"] == {"$ref": "other#/x"}
