"""Short descriptions of tasks and questions, which are complete and limited in length."""

import pytest

from raincheck.core.commands import Cancel, Complete, Fail, Note, Park, Pause
from raincheck.core.records import InputKind, Progress, View
from raincheck.core.values import Json, encode
from raincheck.wire.fallback_text import (
    MAX_TEXT_LENGTH,
    clip_middle,
    clip_text,
    describe_question,
    describe_task,
    format_age,
    format_duration,
)
from tests.support.wire.snapshots import at, created_task, question, running_task, view_after


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0 ms"),
        (0, "0 ms"),
        (0.05, "50 ms"),
        (0.9994, "999 ms"),
        (1, "1 s"),
        (1.25, "1.2 s"),
        (45, "45 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7_199, "120 min"),
        (7_200, "2 h"),
        (172_800, "2 days"),
    ],
)
def test_a_duration_is_easy_to_read(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words


def test_how_long_ago_a_task_began() -> None:
    assert format_age(created_task(), at(90)) == "90 s ago"


VIEWS: dict[str, View] = {
    "build_report is waiting in the queue": view_after(created_task()),
    "build_report is still running": view_after(running_task()),
    "build_report is still running: 3 of 12, crunching": view_after(
        running_task(), Note(1, progress=Progress(3, 12), status_message="crunching")
    ),
    "build_report is still running: 3.5 done": view_after(running_task(), Note(1, progress=Progress(3.5))),
    "build_report waits for an answer": view_after(running_task(), Note(1, input_requests=(question(),))),
    "build_report is paused by the operator": view_after(created_task(), Pause("operator")),
    "build_report has completed": view_after(running_task(), Complete(1, encode({}))),
    "build_report has failed: broke": view_after(running_task(), Fail(1, encode({}), "broke", retryable=False)),
    "build_report was cancelled": view_after(created_task(), Cancel("alice")),
}


@pytest.mark.parametrize(("words", "view"), VIEWS.items(), ids=VIEWS.keys())
def test_a_description_has_the_phase_and_the_progress(words: str, view: View) -> None:
    assert describe_task(view.task) == words


def test_a_task_that_sleeps_is_still_running() -> None:
    assert (
        describe_task(view_after(running_task(), Park(1, seen_signals=0, until=at(60))).task)
        == "build_report is still running"
    )


def test_a_status_message_is_described_in_one_line_and_truncated() -> None:
    task = view_after(running_task(), Note(1, status_message="a\n\tb " + "c" * 1_000)).task
    assert describe_task(task).startswith("build_report is still running: a b cc")
    assert "\n" not in describe_task(task)
    assert len(describe_task(task)) < MAX_TEXT_LENGTH + 50
    assert len(describe_task(task, 40)) < 40 + 50


def test_a_text_is_cut_only_if_it_is_too_long() -> None:
    assert clip_text("x" * MAX_TEXT_LENGTH) == "x" * MAX_TEXT_LENGTH
    assert clip_text("x" * (MAX_TEXT_LENGTH + 1)) == "x" * (MAX_TEXT_LENGTH - 1) + "…"
    assert clip_middle("short") == "short"
    long = clip_middle("begin" + "x" * 10_000 + "end")
    assert (long[:5], long[-3:]) == ("begin", "end")
    assert len(long) < 2 * MAX_TEXT_LENGTH + 10


CHOICE: Json = {"type": "string", "oneOf": [{"const": "a", "title": "First"}, {"const": "b", "title": "Second"}]}
MANY: Json = {"type": "array", "items": {"type": "string", "enum": ["red", "blue"]}}


def form(properties: Json, required: Json = ()) -> Json:
    return {"message": "What?", "requestedSchema": {"type": "object", "properties": properties, "required": required}}


def test_a_form_is_described_field_by_field_with_an_example_answer() -> None:
    asked = form(
        {"name": {"type": "string", "description": "in full"}, "kind": {"type": "string", "enum": ["x", "y"]}}, ["name"]
    )
    spoken = describe_question(question(request=asked))
    assert spoken.text == "Ask the user: What? (name: string, in full; kind: x | y, optional)"
    assert spoken.example_answer == {"name": "<string>"}
    assert spoken.may_decline


def test_a_form_without_fields_that_are_needed_shows_all_of_them() -> None:
    assert describe_question(question(request=form({"sure": {"type": "boolean"}}))).example_answer == {
        "sure": "<boolean>"
    }
    assert (
        describe_question(question(request={"message": "Go on?", "requestedSchema": {"type": "object"}})).example_answer
        == {}
    )


@pytest.mark.parametrize(("schema", "choices"), [(CHOICE, ("a", "b")), (MANY, ("red", "blue"))], ids=["one", "many"])
def test_the_choices_of_a_field_are_described_in_every_schema_form(schema: Json, choices: tuple[str, ...]) -> None:
    text = describe_question(question(request=form({"pick": schema}))).text
    assert all(choice in text for choice in choices), text


def test_the_messages_of_a_sampling_request_have_roles_if_there_are_several() -> None:
    messages: Json = [
        {"role": "user", "content": {"type": "text", "text": "Hello."}},
        {"role": "assistant", "content": [{"type": "text", "text": "Yes?"}]},
    ]
    spoken = describe_question(
        question("sample-0", InputKind.SAMPLING, {"messages": messages, "systemPrompt": "Be kind."})
    )
    assert spoken.text == "Reply yourself: Be kind.\nuser: Hello.\nassistant: Yes?"
    assert (spoken.example_answer, spoken.may_decline) == ({"text": "<reply>"}, False)


def test_folders_are_asked_for_by_an_example() -> None:
    spoken = describe_question(question("roots-0", InputKind.ROOTS, {}))
    assert spoken.example_answer == {"roots": [{"uri": "file:///<folder>"}]}
