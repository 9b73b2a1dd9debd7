"""The texts for callers without tasks always name the next call, on which text and structured content agree."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from raincheck.core.commands import Cancel, Complete, Fail, Note, Pause
from raincheck.core.records import InputRequest, View
from raincheck.core.values import Json, encode
from raincheck.wire.fallback_text import FallbackMessages, FallbackTools
from raincheck.wire.fallback_tools import allow_task_output, list_fallback_tools
from tests.support.wire.snapshots import at, created_task, question, running_task, view_after, view_with_questions

MESSAGES = FallbackMessages(FallbackTools(), 45.0)
TASK = {"task_id": "task-1"}

MAX_TEXT_LENGTH = 600
"""The limit of characters in one answer to a model."""


def text_of(answer: dict[str, Any]) -> str:
    (block,) = answer["content"]
    json.dumps(answer, allow_nan=False)
    return block["text"]


def assert_next(answer: dict[str, Any], tool: str, arguments: Json) -> None:
    assert answer["structuredContent"]["next"] == {"tool": tool, "arguments": arguments}
    assert f"{tool} with {json.dumps(arguments)}" in text_of(answer)
    assert answer["_meta"] == {"raincheck/task": "task-1", "raincheck/tools": asdict(MESSAGES.tools)}


def test_an_unfinished_task_names_task_wait_as_the_next_call() -> None:
    answer = MESSAGES.unfinished(view_after(running_task()), at(45), None)
    assert_next(answer, "task_wait", TASK)
    assert "which waits up to 45 s" in text_of(answer)
    assert "left" not in text_of(answer)


def test_the_remaining_time_is_reported_if_known_and_a_long_task_is_for_later() -> None:
    assert "about 60 s left" in text_of(MESSAGES.unfinished(view_after(running_task()), at(45), 60))
    assert "later" not in text_of(MESSAGES.unfinished(view_after(running_task()), at(45), 450))
    assert "later" in text_of(MESSAGES.unfinished(view_after(running_task()), at(45), 451))


def test_an_open_question_names_task_answer_and_one_that_the_user_has_names_task_wait() -> None:
    view = view_with_questions(question())
    assert_next(MESSAGES.unfinished(view, at(1), None), "task_answer", {**TASK, "answer": {"ok": "<boolean>"}})
    assert_next(MESSAGES.unfinished(view, at(1), None, user_was_asked=True), "task_wait", TASK)


def test_a_question_that_the_user_has_been_asked_can_also_be_answered_by_the_model() -> None:
    answer = MESSAGES.unfinished(view_with_questions(question()), at(1), None, user_was_asked=True)
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
def test_a_question_that_is_too_long_for_the_text_is_read_by_another_call(questions: tuple[InputRequest, ...]) -> None:
    noted = view_after(running_task(), Note(1, status_message="y" * 1_000)).task
    view = View(noted, None, questions)
    answer = MESSAGES.unfinished(view, at(1), None, user_was_asked=True)
    assert_next(answer, "task_wait", TASK)
    assert f"call task_status with {json.dumps(TASK)}" in text_of(answer)
    assert len(text_of(answer)) < MAX_TEXT_LENGTH
    assert len(answer["structuredContent"]["questions"]) == len(questions)


def test_of_many_questions_only_the_first_are_in_the_text() -> None:
    answer = MESSAGES.unfinished(
        view_with_questions(*(question(f"question-{number}") for number in range(9))), at(1), None
    )
    assert len(text_of(answer)) < MAX_TEXT_LENGTH
    assert '"key": "question-0"' in text_of(answer)
    assert '"key": "question-8"' not in text_of(answer)
    assert "It asks more questions after these" in text_of(answer)
    assert '"action": "decline"' in text_of(answer)
    assert len(answer["structuredContent"]["questions"]) == 9


def test_a_paused_task_names_the_operator_and_is_for_later() -> None:
    text = text_of(MESSAGES.unfinished(view_after(created_task(), Pause("operator")), at(45), 60))
    assert "It continues only after the operator resumes it" in text
    assert "by itself" not in text
    assert "left" not in text
    assert "later" in text


def test_a_late_answer_adds_a_note_before_the_unchanged_result() -> None:
    ended = {"content": [{"type": "text", "text": "done"}], "structuredContent": {"result": 1}, "isError": False}
    answer = MESSAGES.answer_not_used(view_after(running_task(), Complete(1, encode({}))).task, ended)
    assert [block["text"] for block in answer["content"]] == [
        "build_report ended before this answer arrived, so the answer was not used. This is how it ended:",
        "done",
    ]
    assert {name: value for name, value in answer.items() if name != "content"} == {
        "structuredContent": {"result": 1},
        "isError": False,
    }


def test_several_questions_are_distinguished_by_their_keys() -> None:
    answer = MESSAGES.unfinished(view_with_questions(question("one"), question("two")), at(1), None)
    assert_next(answer, "task_answer", {**TASK, "key": "one", "answer": {"ok": "<boolean>"}})
    assert '"key": "two"' in text_of(answer)
    assert [one["key"] for one in answer["structuredContent"]["questions"]] == ["one", "two"]


@pytest.mark.parametrize(
    "command", [Complete(1, encode({})), Fail(1, encode({}), "broke", retryable=False)], ids=["completed", "failed"]
)
def test_an_ended_task_names_task_result_as_the_next_call(command: Any) -> None:
    view = view_after(running_task(), command)
    assert_next(MESSAGES.status(view, at(45), None), "task_result", TASK)
    assert_next(MESSAGES.already_ended(view.task), "task_result", TASK)


def test_a_cancelled_task_names_no_next_call() -> None:
    view = view_after(created_task(), Cancel("alice"))
    for answer in (
        MESSAGES.status(view, at(45), None),
        MESSAGES.already_ended(view.task),
        MESSAGES.cancelled(view.task),
    ):
        assert "next" not in answer["structuredContent"]
        assert answer["structuredContent"]["status"] == "cancelled"


def test_a_list_names_each_task_and_may_be_empty() -> None:
    answer = MESSAGES.latest_tasks(
        [created_task(), view_after(running_task(), Note(1, status_message="x" * 1_000)).task], at(45), None
    )
    assert text_of(answer).count("task-1") == 2
    assert len(text_of(answer)) < 300
    assert text_of(MESSAGES.latest_tasks([], at(0), None)) == "You have no tasks."
    assert len(text_of(MESSAGES.latest_tasks([], at(0), "x" * 10_000))) < 300


def test_the_tool_descriptions_are_short_and_use_the_configured_names() -> None:
    tools = list_fallback_tools(FallbackMessages(FallbackTools.prefixed("my_"), 45.0))
    assert [tool["name"] for tool in tools] == list(FallbackTools.prefixed("my_"))
    assert all(len(tool["description"]) < 150 for tool in tools)
    assert " task_" not in json.dumps(tools).replace("task_id", "")


def test_a_tool_without_an_output_schema_is_unchanged() -> None:
    assert allow_task_output({"name": "x"}) == {"name": "x"}


def test_references_in_a_schema_are_relocated_and_data_is_unchanged() -> None:
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
