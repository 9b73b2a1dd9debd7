"""The messages of 2025-11-25 for stored tasks always fit its schema."""

import json
import math
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raincheck.core.commands import Cancel, Complete, Note
from raincheck.core.lifecycle import Status
from raincheck.core.policies import MAX_KEEP, Retention
from raincheck.core.records import InputKind, Progress, Task, View
from raincheck.core.values import Json, encode
from raincheck.wire import v2025
from raincheck.wire.errors import error_of, is_protocol_error
from raincheck.wire.fields import (
    INPUT_META_KEY,
    LARGEST_INTEGER,
    as_object,
    clamp_positive,
    format_timestamp,
    outcome_of,
    request_of,
    to_milliseconds,
)
from raincheck.wire.results import tool_result
from tests.support.schemas import validate
from tests.support.wire.snapshots import (
    MESSAGES,
    START,
    at,
    created_task,
    question,
    running_task,
    view_after,
    view_with_questions,
)
from tests.wire.test_v2026 import VIEWS, each_view, failed, json_values, spans, views

VERSION = "2025-11-25"
RELATED = "io.modelcontextprotocol/related-task"
ALWAYS = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl", "pollInterval"}


def over_the_wire(name: str, value: object) -> Any:
    """The value as the other side reads it. Fails if the schema does not allow it."""
    read = json.loads(json.dumps(value, allow_nan=False))
    validate(name, read, VERSION)
    return read


def got(view: View, poll_ms: int = 500, now: datetime = START) -> dict[str, Any]:
    """The answer to `tasks/get`."""
    return over_the_wire("GetTaskResult", v2025.get_result(view, poll_ms=poll_ms, now=now))


def result_of(view: View) -> dict[str, Any]:
    """The answer to `tasks/result` for a completed task."""
    returned = {**tool_result(view.task, outcome_of(view)), "resultType": "complete"}
    return over_the_wire("CallToolResult", v2025.call_result(view, returned))


@pytest.mark.requirement("v2025-no-related-task-in-tasks", "v2025-status-no-related-task")
@each_view
def test_a_task_fits_the_schema_in_every_phase_and_message(view: View) -> None:
    answer = got(view)
    message = {"statusMessage"} if view.task.status_message or view.task.status is Status.FAILED else set[str]()
    assert answer.keys() == ALWAYS | message
    notification = {"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": answer}
    over_the_wire("TaskStatusNotification", notification)
    over_the_wire("CancelTaskResult", answer)
    fields = v2025.task_fields(view.task, poll_ms=500, now=START)
    made = over_the_wire(
        "CreateTaskResult", v2025.create_result(view.task, poll_ms=500, now=START, immediate_text="wait")
    )
    assert made == {"task": fields, "_meta": {"io.modelcontextprotocol/model-immediate-response": "wait"}}
    assert over_the_wire("ListTasksResult", v2025.list_result([fields], None)) == {"tasks": [fields]}
    assert RELATED not in json.dumps([answer, made])


@pytest.mark.requirement("v2025-tool-error-fails")
@each_view
def test_the_status_is_the_stored_one_except_for_a_result_that_reports_an_error(view: View) -> None:
    is_tool_error = view.task.status is Status.COMPLETED and view.task.is_error
    assert got(view)["status"] == ("failed" if is_tool_error else view.task.status)


@pytest.mark.requirement("v2025-failed-says-why")
def test_a_failure_always_has_a_status_message() -> None:
    cases: list[tuple[Json, str]] = [({"kind": "error", "message": "broke"}, "broke"), (None, "it broke")]
    for stored, message in cases:
        assert got(failed(stored, message))["statusMessage"] == message
    for outcome in (None, encode({"message": ""}), encode([])):
        view = View(failed(None, "").task, outcome, ())
        assert got(view)["statusMessage"] == "the task failed without a reason"


def test_a_missing_status_message_is_omitted_and_not_null() -> None:
    for message in (None, ""):
        fields = v2025.task_fields(created_task().evolve(status_message=message), poll_ms=500, now=START)
        assert "statusMessage" not in fields


def test_a_page_has_a_cursor_if_there_is_a_next_page() -> None:
    assert over_the_wire("ListTasksResult", v2025.list_result([], "abc")) == {"tasks": [], "nextCursor": "abc"}
    assert over_the_wire("ListTasksResult", v2025.list_result([], "")) == {"tasks": [], "nextCursor": ""}
    assert over_the_wire("ListTasksResult", v2025.list_result([], None)) == {"tasks": []}


def ttl_of(task: Task, now: datetime) -> int | None:
    return over_the_wire("Task", v2025.task_fields(task, poll_ms=500, now=now))["ttl"]


def test_the_requested_ttl_is_reported_until_it_has_passed() -> None:
    task = running_task(retention=Retention(ttl=timedelta(seconds=60)))
    assert ttl_of(task, at(0)) == ttl_of(task, at(59.999)) == 60_000
    assert ttl_of(task, at(60)) is None
    assert ttl_of(task, at(1_000_000)) is None
    # A clock that is set back, which real ones are.
    assert ttl_of(task, at(-60)) == 60_000


def test_the_actual_retention_is_reported_whatever_ttl_was_requested() -> None:
    assert ttl_of(running_task(), START) is None
    short = Retention(keep=timedelta(seconds=100), ttl=timedelta(seconds=60))
    bounded = running_task(deadline_at=at(10), retention=short)
    assert ttl_of(bounded, START) == 110_000
    ended = view_after(running_task(retention=short), Complete(1, encode(1)), now=at(30)).task
    assert ttl_of(ended, START) == ttl_of(ended, at(10_000)) == 130_000


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (created_task(retention=Retention(ttl=timedelta(0))), None),
        (created_task(retention=Retention(ttl=timedelta(microseconds=1))), 1),
        (created_task(retention=Retention(ttl=timedelta(microseconds=1_001))), 2),
        (created_task(retention=Retention(ttl=MAX_KEEP)), 315_360_000_000),
    ],
    ids=["nothing", "less than a millisecond", "a little more than one", "the longest"],
)
def test_a_ttl_is_rounded_up_to_whole_milliseconds(task: Task, expected: int | None) -> None:
    assert ttl_of(task, START) == expected


METAS: list[Json] = [None, {}, [], "text", 7, {"example.com/kept": 1}, {RELATED: {"taskId": "another's"}, "a": None}]


@pytest.mark.requirement("v2025-related-everywhere")
@pytest.mark.parametrize("meta", METAS, ids=str)
def test_a_message_of_a_task_names_it_beside_its_own_metadata(meta: Json) -> None:
    related = v2025.related_meta("task-1", meta)
    assert related[RELATED] == {"taskId": "task-1"}
    others = {name: value for name, value in as_object(meta).items() if name != RELATED}
    assert {name: value for name, value in related.items() if name != RELATED} == others


def progress_of(task: Task, token: str | int) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "method": "notifications/progress", "params": v2025.progress_params(task, token)}
    return over_the_wire("ProgressNotification", message)["params"]


@pytest.mark.requirement("v2025-related-everywhere", "v2025-progress-token-lives")
@pytest.mark.parametrize("token", ["abc", "", 0, -1, 2**60], ids=repr)
def test_progress_has_the_token_and_the_known_fields(token: str | int) -> None:
    assert v2025.progress_params(running_task(), token) is None
    related = {RELATED: {"taskId": "task-1"}}
    half = view_after(running_task(), Note(1, progress=Progress(1, 2), status_message="half of it")).task
    assert progress_of(half, token) == {
        "progressToken": token,
        "progress": 1,
        "total": 2,
        "message": "half of it",
        "_meta": related,
    }
    some = view_after(running_task(), Note(1, progress=Progress(0))).task
    assert progress_of(some, token) == {"progressToken": token, "progress": 0, "_meta": related}


@given(st.floats(0, allow_nan=False, allow_infinity=False), st.none() | st.floats(0, allow_infinity=False), st.text())
def test_every_reported_progress_fits_the_schema(done: float, total: float | None, message: str) -> None:
    task = running_task().evolve(progress=Progress(done, total), status_message=message)
    params = progress_of(task, "token")
    assert params["progress"] == done
    assert params.get("total") == total
    assert params.get("message", "") == message


NAMES = {
    "elicitation/create": "ElicitRequest",
    "sampling/createMessage": "CreateMessageRequest",
    "roots/list": "ListRootsRequest",
}


def asked_of(kind: InputKind, request: Json) -> dict[str, Any]:
    """The request that a caller receives, without the reference to its task."""
    request_sent = v2025.input_request(question(kind=kind, request=request), "task-1")
    read = over_the_wire(NAMES[request_sent["method"]], {"jsonrpc": "2.0", "id": 1, **request_sent})
    assert read["params"]["_meta"][RELATED] == {"taskId": "task-1"}
    bare = over_the_wire(
        NAMES[request_sent["method"]], {"jsonrpc": "2.0", "id": 1, **request_of(question(kind=kind, request=request))}
    )
    assert RELATED not in json.dumps(bare)
    params = {name: value for name, value in read["params"].items() if name != "_meta"}
    assert params == {name: value for name, value in bare["params"].items() if name != "_meta"}
    return read


@pytest.mark.requirement("v2025-question-names-task")
def test_a_question_names_its_task_and_itself_and_keeps_its_own_metadata() -> None:
    metadata: Json = {"example.com/kept": 1, RELATED: {"taskId": "another's"}, INPUT_META_KEY: "another"}
    asked = question(request={"message": "Go on?", "_meta": metadata})
    request_sent = v2025.input_request(asked, "task-1")
    assert request_sent["params"]["_meta"] == {
        "example.com/kept": 1,
        RELATED: {"taskId": "task-1"},
        INPUT_META_KEY: asked.key,
    }


properties = st.dictionaries(
    st.text(),
    st.sampled_from(
        [{"type": "string"}, {"type": "boolean"}, {"type": "integer", "minimum": 0}, {"enum": ["a"], "type": "string"}]
    ),
    max_size=3,
)
forms = st.fixed_dictionaries(
    {"message": st.text()},
    optional={
        "mode": st.sampled_from(["form", None]),
        "requestedSchema": st.none()
        | st.fixed_dictionaries({"type": st.just("object")}, optional={"properties": properties}),
        "_meta": st.none() | st.dictionaries(st.text(), json_values, max_size=2),
    },
)
pages = st.fixed_dictionaries(
    {"mode": st.just("url"), "message": st.text(), "url": st.just("https://a.example/in"), "elicitationId": st.text()}
)
messages: st.SearchStrategy[Any] = st.lists(
    st.fixed_dictionaries(
        {
            "role": st.sampled_from(["user", "assistant"]),
            "content": st.text().map(lambda text: {"type": "text", "text": text}),
        }
    ),
    max_size=3,
)
samplings: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"messages": messages},
    optional={
        "maxTokens": st.none() | st.integers(1, 10_000),
        "systemPrompt": st.none() | st.text(),
        "temperature": st.none() | st.floats(0, 2),
        "stopSequences": st.none() | st.lists(st.text(), max_size=2),
    },
)


@given(forms | pages)
def test_every_elicitation_fits_the_schema(request: Any) -> None:
    asked = asked_of(InputKind.ELICITATION, request)
    assert asked["params"]["message"] == request["message"]
    assert ("requestedSchema" in asked["params"]) is (request.get("mode") != "url")


@given(samplings)
def test_every_sampling_request_fits_the_schema(request: Any) -> None:
    asked = asked_of(InputKind.SAMPLING, request)
    assert asked["params"]["messages"] == request["messages"]
    assert asked["params"]["maxTokens"] == (request.get("maxTokens") or 1_000)
    assert None not in asked["params"].values()


def test_a_roots_request_fits_the_schema_without_a_message() -> None:
    for request in ({}, None, {"_meta": None}):
        assert asked_of(InputKind.ROOTS, request)["method"] == "roots/list"
    assert asked_of(InputKind.SAMPLING, {"messages": MESSAGES})["params"]["messages"] == MESSAGES


@pytest.mark.requirement("v2025-result-names-task", "v2025-result-is-the-calls")
def test_a_result_is_as_it_was_stored_and_names_its_task() -> None:
    stored: Json = {"content": [{"type": "text", "text": "2 rows"}], "isError": False, "_meta": {"a/b": 1}}
    view = view_after(running_task(), Complete(1, encode(stored)))
    related = {RELATED: {"taskId": "task-1"}}
    assert result_of(view) == {**cast("dict[str, Any]", stored), "_meta": {"a/b": 1, **related}}


@pytest.mark.parametrize("structured", [[1], "text", 7, None, True], ids=repr)
def test_a_result_has_no_structured_content_but_objects(structured: Json) -> None:
    stored: Json = {"content": [{"type": "text", "text": "said"}], "structuredContent": structured}
    result = result_of(view_after(running_task(), Complete(1, encode(stored))))
    assert result.keys() == {"content", "_meta"}


@given(json_values, st.booleans(), st.none() | st.text())
def test_whatever_a_body_left_its_result_is_one(outcome: Json, is_error: bool, message: str | None) -> None:
    view = view_after(running_task(), Complete(1, encode(outcome), is_error, message))
    result = result_of(view)
    assert result["_meta"][RELATED] == {"taskId": "task-1"}
    assert result.get("isError", False) is is_error
    assert "resultType" not in result


blocks = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image", "audio", "resource", "resource_link", "other"])},
    optional=dict.fromkeys(("text", "data", "mimeType", "uri", "name", "resource", "annotations"), json_values),
)
nearly_results = st.fixed_dictionaries(
    {"content": st.lists(blocks, max_size=2)},
    optional=dict.fromkeys(("structuredContent", "isError", "resultType", "_meta"), json_values),
)


@given(nearly_results)
def test_an_outcome_that_only_resembles_a_result_is_wrapped(outcome: Json) -> None:
    result_of(view_after(running_task(), Complete(1, encode(outcome))))


REASONS = {None: "Task cancelled", "": "Task cancelled", "cancelled": "Task cancelled", "late": "Task cancelled: late"}


@pytest.mark.requirement("v2025-result-of-terminal")
@pytest.mark.parametrize(("reason", "expected"), REASONS.items(), ids=str)
def test_the_result_of_a_cancelled_task_is_an_error_that_names_it(reason: str | None, expected: str) -> None:
    task = view_after(running_task(), Cancel("alice", reason)).task
    code, message, data = v2025.cancelled_error(task)
    error = {"code": code, "message": message, "data": data}
    over_the_wire("JSONRPCErrorResponse", {"jsonrpc": "2.0", "id": 1, "error": error})
    assert (code, message) == (-32000, expected)
    assert data == {"_meta": {RELATED: {"taskId": "task-1"}}}


@pytest.mark.requirement("v2025-result-error-is-the-calls")
@given(views())
def test_the_error_of_a_failure_is_always_one(view: View) -> None:
    error = error_of(view)
    over_the_wire("JSONRPCErrorResponse", {"jsonrpc": "2.0", "id": 1, "error": error})
    assert error["message"]
    if not is_protocol_error(view):
        assert error["code"] == -32603


@pytest.mark.requirement("v2025-created-at", "v2025-updated-at", "v2025-ttl-told")
@given(views(), st.integers(), spans)
def test_every_outcome_has_a_valid_answer(view: View, poll_ms: int, since: timedelta) -> None:
    now = view.task.created_at + since
    answer = got(view, poll_ms, now)
    assert answer["taskId"] == view.task.id
    assert not [key for key, value in answer.items() if value is None and key != "ttl"]
    for key in ("ttl", "pollInterval"):
        assert answer[key] is None or (type(answer[key]) is int and 0 < answer[key] < 2**53)
    for key in ("createdAt", "lastUpdatedAt"):
        assert answer[key].endswith("Z")
        assert datetime.fromisoformat(answer[key]).tzinfo is not None
    assert answer["createdAt"] <= answer["lastUpdatedAt"]
    if answer["status"] == "failed" and view.task.status is Status.FAILED:
        assert answer["statusMessage"]
    # The reported ttl is never shorter than the retention.
    retention = view.task.ttl
    assert retention is None or timedelta(milliseconds=answer["ttl"]) >= retention
    asked = view.task.retention.ttl
    assert retention is not None or answer["ttl"] is None or (asked is not None and since < asked)


def test_tasks_list_is_offered_only_to_callers_that_may_list() -> None:
    offered: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    assert over_the_wire("ServerCapabilities", {"tasks": v2025.capability(may_list=True)}) == {"tasks": offered}
    del offered["list"]
    assert over_the_wire("ServerCapabilities", {"tasks": v2025.capability(may_list=False)}) == {"tasks": offered}


@given(st.integers())
def test_a_number_is_positive_and_exact_for_every_reader(number: int) -> None:
    encoded = clamp_positive(number)
    assert 1 <= encoded <= LARGEST_INTEGER
    assert encoded == number or not 1 <= number <= LARGEST_INTEGER


def test_a_value_that_is_not_a_number_is_rejected() -> None:
    for wrong in (math.nan, math.inf):
        with pytest.raises((ValueError, OverflowError)):
            v2025.task_fields(created_task(), poll_ms=cast("int", wrong), now=START)


@given(spans)
def test_a_duration_is_rounded_up_to_milliseconds(duration: timedelta) -> None:
    encoded = timedelta(milliseconds=to_milliseconds(duration))
    assert duration <= encoded <= duration + timedelta(milliseconds=1)


@given(st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.timezones()))  # noqa: DTZ001 - it adds one
def test_a_timestamp_is_in_utc_and_at_most_a_millisecond_early(when: datetime) -> None:
    encoded = format_timestamp(when)
    assert encoded.endswith("Z")
    assert timedelta(0) <= when - datetime.fromisoformat(encoded) < timedelta(milliseconds=1)


def test_open_questions_are_not_part_of_the_task() -> None:
    assert got(view_with_questions(question())).keys() == ALWAYS
    assert got(view_with_questions(question()))["status"] == "input_required"
    assert got(VIEWS["parked, and asking"])["status"] == "input_required"
