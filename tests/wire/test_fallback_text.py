"""What callers without tasks are told of one: always with the next call, which text and structured content agree on."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from raincheck.core.commands import Cancel, Complete, Fail, Note, Pause
from raincheck.core.payload import Json, encode
from raincheck.core.records import InputRequest, View
from raincheck.wire.fallback_text import FallbackMessages
from raincheck.wire.fallback_tool_list import allow_task_output, list_fallback_tools
from raincheck.wire.fallback_tools import FallbackTools
from tests.support.wire.snapshots import asking, at, created, question, running, seen

TELLING = FallbackMessages(FallbackTools(), 45.0)
TASK = {"task_id": "task-1"}

LONGEST = 600
"""Characters that a model is told at once."""


def text_of(answer: dict[str, Any]) -> str:
    (block,) = answer["content"]
    json.dumps(answer, allow_nan=False)
    return block["text"]


def assert_next(answer: dict[str, Any], tool: str, arguments: Json) -> None:
    assert answer["structuredContent"]["next"] == {"tool": tool, "arguments": arguments}
    assert f"{tool} with {json.dumps(arguments)}" in text_of(answer)
    assert answer["_meta"] == {"raincheck/task": "task-1", "raincheck/tools": asdict(TELLING.tools)}


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
    assert_next(TELLING.unfinished(view, at(1), None, user_was_asked=True), "task_wait", TASK)


def test_a_question_that_the_user_has_been_asked_can_be_answered_in_words_too() -> None:
    answer = TELLING.unfinished(asking(question()), at(1), None, user_was_asked=True)
    assert "The user has been asked." in text_of(answer)
    assert "Ask the user: Publish it? (ok: boolean, optional)" in text_of(answer)
    assert f"task_answer with {json.dumps({**TASK, 'answer': {'ok': '<boolean>'}})}" in text_of(answer)
    (one,) = answer["structuredContent"]["questions"]
    assert (one["key"], one["message"]) == ("elicit-0", "Publish it?")


@pytest.mark.parametrize(
    "questions",
    [
        (question("one"), question("two")),
        (question(request={"message": "x" * 400, "requestedSchema": {"type": "object", "properties": {}}}),),
    ],
    ids=["several", "a long one"],
)
def test_what_takes_long_to_ask_in_words_is_told_by_another_call(questions: tuple[InputRequest, ...]) -> None:
    noted = seen(running(), Note(1, status_message="y" * 1_000)).task
    view = View(noted, None, questions)
    answer = TELLING.unfinished(view, at(1), None, user_was_asked=True)
    assert_next(answer, "task_wait", TASK)
    assert f"call task_status with {json.dumps(TASK)}" in text_of(answer)
    assert len(text_of(answer)) < LONGEST
    assert len(answer["structuredContent"]["questions"]) == len(questions)


def test_of_many_questions_the_first_are_told_and_the_rest_when_those_are_answered() -> None:
    answer = TELLING.unfinished(asking(*(question(f"question-{number}") for number in range(9))), at(1), None)
    assert len(text_of(answer)) < LONGEST
    assert '"key": "question-0"' in text_of(answer)
    assert '"key": "question-8"' not in text_of(answer)
    assert "It asks more" in text_of(answer)
    assert '"action": "decline"' in text_of(answer)
    assert len(answer["structuredContent"]["questions"]) == 9


def test_what_is_held_back_goes_on_when_the_operator_lets_it_which_may_be_late() -> None:
    text = text_of(TELLING.unfinished(seen(created(), Pause("operator")), at(45), 60))
    assert "It goes on when the operator resumes it" in text
    assert "by itself" not in text
    assert "left" not in text
    assert "later" in text


def test_an_answer_that_came_too_late_is_said_to_before_the_result_which_stays_as_it_is() -> None:
    ended = {"content": [{"type": "text", "text": "done"}], "structuredContent": {"result": 1}, "isError": False}
    answer = TELLING.answer_not_used(seen(running(), Complete(1, encode({}))).task, ended)
    assert [block["text"] for block in answer["content"]] == [
        "build_report had ended before this answer came, which was not used. How it ended:",
        "done",
    ]
    assert {name: value for name, value in answer.items() if name != "content"} == {
        "structuredContent": {"result": 1},
        "isError": False,
    }


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
    assert_next(TELLING.already_ended(view.task), "task_result", TASK)


def test_of_a_task_that_was_cancelled_there_is_nothing_to_read() -> None:
    view = seen(created(), Cancel("alice"))
    for answer in (TELLING.status(view, at(45), None), TELLING.already_ended(view.task), TELLING.cancelled(view.task)):
        assert "next" not in answer["structuredContent"]
        assert answer["structuredContent"]["status"] == "cancelled"


def test_a_list_names_each_task_and_none_that_is_not_there() -> None:
    answer = TELLING.latest_tasks([created(), seen(running(), Note(1, status_message="x" * 1_000)).task], at(45), None)
    assert text_of(answer).count("task-1") == 2
    assert len(text_of(answer)) < 300
    assert text_of(TELLING.latest_tasks([], at(0), None)) == "You have no tasks."
    assert len(text_of(TELLING.latest_tasks([], at(0), "x" * 10_000))) < 300


def test_the_tools_are_listed_in_few_words_and_by_the_names_they_have() -> None:
    tools = list_fallback_tools(FallbackMessages(FallbackTools.prefixed("my_"), 45.0))
    assert [tool["name"] for tool in tools] == list(FallbackTools.prefixed("my_"))
    assert all(len(tool["description"]) < 150 for tool in tools)
    assert " task_" not in json.dumps(tools).replace("task_id", "")


def test_a_tool_without_an_output_schema_stays_as_it_is() -> None:
    assert allow_task_output({"name": "x"}) == {"name": "x"}


def test_what_a_schema_refers_to_is_where_it_says_and_data_stays_data() -> None:
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"a": {"$ref": "#"}},
        "properties": {
            "$ref": {"$ref": "#/$defs/a"},
            "b": {"const": {"$ref": "#/x"}},
            "c": {"$ref": "other#/x"},
            "d": {"$dynamicRef": "#/$defs/a"},
            "e": {"$dynamicRef": "#node"},
        },
    }
    moved = allow_task_output({"name": "x", "outputSchema": schema})["outputSchema"]
    assert moved["$schema"] == schema["$schema"]
    own = moved["anyOf"][0]
    assert own["$defs"] == {"a": {"$ref": "#/anyOf/0"}}
    assert own["properties"]["$ref"] == {"$ref": "#/anyOf/0/$defs/a"}
    assert own["properties"]["b"] == {"const": {"$ref": "#/x"}}
    assert own["properties"]["c"] == {"$ref": "other#/x"}
    assert own["properties"]["d"] == {"$dynamicRef": "#/anyOf/0/$defs/a"}
    assert own["properties"]["e"] == {"$dynamicRef": "#node"}
