"""The messages of the 2026-07-28 extension for stored tasks always fit its schema."""

import json
import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raincheck.core.commands import Cancel, Complete, Expire, Fail, Interrupt, Note, Park, Pause, Release
from raincheck.core.lifecycle import Phase
from raincheck.core.policies import MAX_KEEP, OnInterrupt, Retention, RetryPolicy
from raincheck.core.records import InputKind, Progress, Task, View
from raincheck.core.values import Json, Payload, encode
from raincheck.wire import v2026
from tests.support.schemas import validate
from tests.support.wire.snapshots import (
    CLAIM,
    MESSAGES,
    START,
    at,
    created_task,
    question,
    running_task,
    view_after,
    view_with_questions,
)

REPORT: Json = {"content": [{"type": "text", "text": "2 rows"}], "isError": False, "resultType": "complete"}
ALWAYS = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs"}

VIEWS = {
    "queued": view_after(created_task()),
    "running": view_after(running_task()),
    "running, and asking": view_with_questions(question()),
    "parked": view_after(running_task(), Park(1, seen_signals=0, until=at(60))),
    "parked, and asking": view_after(running_task(), Note(1, input_requests=(question(),)), Park(1, seen_signals=0)),
    "paused": view_after(created_task(), Pause("operator")),
    "completed": view_after(running_task(), Complete(1, encode(REPORT))),
    "completed with a tool error": view_after(
        running_task(), Complete(1, encode({"message": "no rows"}), is_error=True)
    ),
    "failed": view_after(
        running_task(), Fail(1, encode({"kind": "error", "message": "broke"}), "broke", retryable=False)
    ),
    "expired": view_after(created_task(deadline_at=at(10)), Expire(), now=at(10)),
    "interrupted": view_after(running_task(retry=RetryPolicy(on_interrupt=OnInterrupt.FAIL)), Interrupt(), now=at(60)),
    "cut off": view_after(running_task(retry=RetryPolicy(on_interrupt=OnInterrupt.FAIL)), Release(1)),
    "cancelled": view_after(view_with_questions(question()).task, Cancel("alice")),
}

each_view = pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())

assert {view.task.phase for view in VIEWS.values()} == set(Phase)


def failed(error: Json, message: str = "broke") -> View:
    return view_after(running_task(), Fail(1, encode(error), message, retryable=False))


def got(view: View, poll_ms: int = 500) -> dict[str, Any]:
    """The answer to `tasks/get` as the other side reads it. Fails if the schema does not allow it."""
    text = json.dumps(v2026.get_result(view, poll_ms=poll_ms), allow_nan=False)
    answer = json.loads(text)
    validate("GetTaskResult", answer)
    return answer


@pytest.mark.requirement("get-result-type", "get-working", "get-cancelled")
@each_view
def test_the_answer_to_a_poll_fits_the_schema_in_every_phase(view: View) -> None:
    answer = got(view)
    assert answer["resultType"] == "complete"
    assert answer["status"] == view.task.status
    named = {"completed": "CompletedTask", "failed": "FailedTask", "cancelled": "CancelledTask"}
    validate(named.get(answer["status"], "Task"), answer)


@pytest.mark.requirement("get-by-status", "get-no-request-state", "wire-field-names")
@each_view
def test_a_poll_has_only_the_fields_of_its_status(view: View) -> None:
    own = {"completed": {"result"}, "failed": {"error", "statusMessage"}, "input_required": {"inputRequests"}}
    answer = got(view)
    message = {"statusMessage"} if view.task.status_message else set[str]()
    assert answer.keys() == ALWAYS | {"resultType"} | own.get(answer["status"], set()) | message


def test_progress_is_in_the_metadata_for_callers_that_know_the_key() -> None:
    for progress, numbers in ((Progress(3, 12), {"done": 3, "total": 12}), (Progress(3), {"done": 3})):
        view = view_after(running_task(), Note(1, progress, "crunching"))
        assert got(view)["_meta"] == {"raincheck/progress": numbers}
    assert "_meta" not in got(view_after(running_task(), Note(1, None, "crunching")))


@pytest.mark.requirement("notification-is-detailed-task")
@each_view
def test_a_notification_has_the_fields_of_a_poll(view: View) -> None:
    params = cast("dict[str, Any]", v2026.detailed_task(view, poll_ms=500))
    validate("TaskStatusNotification", {"jsonrpc": "2.0", "method": "notifications/tasks", "params": params})
    validate("DetailedTask", params)
    assert params | {"resultType": "complete"} == got(view)
    assert "resultType" not in params


@pytest.mark.requirement("create-result-type", "create-no-request-state")
@each_view
def test_a_new_task_is_flat_and_has_no_outcome(view: View) -> None:
    answer = cast("dict[str, Any]", v2026.create_result(view.task, poll_ms=500))
    validate("CreateTaskResult", answer)
    assert answer["resultType"] == "task"
    assert answer.keys() - {"statusMessage"} == ALWAYS | {"resultType"}


@pytest.mark.requirement("no-task-result-type-elsewhere", "update-result-type", "cancel-result-type")
def test_an_acknowledgement_has_no_content() -> None:
    assert v2026.ack() == {"resultType": "complete"}
    validate("UpdateTaskResult", v2026.ack())
    validate("CancelTaskResult", v2026.ack())
    assert all(got(view)["resultType"] == "complete" for view in VIEWS.values())


@pytest.mark.requirement("missing-capability-data")
def test_a_caller_that_did_not_declare_the_extension_gets_its_name() -> None:
    code, message, data = v2026.missing_capability()
    error = {"code": code, "message": message, "data": data}
    validate("MissingRequiredClientCapabilityError", {"jsonrpc": "2.0", "id": 1, "error": error})
    assert data == {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}


@pytest.mark.requirement("failed-has-error", "failed-has-status-message", "get-failed")
@pytest.mark.parametrize("name", ["failed", "expired", "interrupted", "cut off"])
def test_a_failed_task_always_has_an_error_and_its_message_as_status_message(name: str) -> None:
    answer = got(VIEWS[name])
    assert answer["error"] == {"code": -32603, "message": VIEWS[name].task.status_message}
    assert answer["statusMessage"] == VIEWS[name].task.status_message


@pytest.mark.requirement("failed-error-is-the-calls")
@pytest.mark.parametrize("data", [None, {"seconds": 30}, [1], "later", 0, False])
def test_a_protocol_error_is_passed_on_unchanged(data: Json) -> None:
    stored: dict[str, Json] = {"kind": "protocol", "code": -32050, "message": "not now"}
    expected = {"code": -32050, "message": "not now"}
    more = {} if data is None else {"data": data}
    assert got(failed(stored | more, "not now"))["error"] == expected | more


def test_an_unexpected_error_is_an_internal_error_with_its_error_id() -> None:
    error = got(failed({"kind": "error", "message": "broke", "error_id": "c0ffee", "code": 7, "data": "secret"}))[
        "error"
    ]
    assert error == {"code": -32603, "message": "broke", "data": {"errorId": "c0ffee"}}


ODD_ERRORS: list[Json] = [None, "oops", [], {}, {"message": None}, {"message": ""}, {"message": 7}]


@pytest.mark.parametrize("stored", ODD_ERRORS)
def test_an_error_of_an_odd_shape_is_reported_with_the_status_message(stored: Json) -> None:
    answer = got(failed(stored, "it broke"))
    assert answer["error"] == {"code": -32603, "message": "it broke"}


@pytest.mark.parametrize("code", [None, "7", 1.5, True])
def test_a_code_that_is_no_integer_is_not_sent(code: Json) -> None:
    assert got(failed({"kind": "protocol", "code": code, "message": "broke"}))["error"]["code"] == -32603


def test_a_failed_task_without_a_message_has_a_default_message() -> None:
    task = view_after(running_task(), Fail(1, encode(None), "", retryable=False)).task
    for outcome in (None, encode({"message": ""})):
        answer = got(View(task, outcome, ()))
        assert answer["statusMessage"] == answer["error"]["message"] == "the task failed without a reason"


def test_a_missing_status_message_is_omitted_and_not_null() -> None:
    for message in (None, ""):
        task = created_task().evolve(status_message=message)
        assert "statusMessage" not in v2026.task_fields(task, poll_ms=500)
    assert got(view_after(running_task(), Note(1, status_message="crunching")))["statusMessage"] == "crunching"


def test_the_status_message_of_a_working_task_is_gone_when_it_completes() -> None:
    task = view_after(running_task(), Note(1, status_message="crunching")).task
    assert "statusMessage" not in got(view_after(task, Complete(1, encode(REPORT))))


def test_cancelled_is_spelled_with_two_ls_and_has_its_reason() -> None:
    answer = got(view_after(running_task(), Cancel("alice", "not needed any more")))
    assert (answer["status"], answer["statusMessage"]) == ("cancelled", "not needed any more")


@pytest.mark.requirement("get-input-required", "get-all-outstanding")
def test_all_open_questions_are_listed_each_with_its_own_request() -> None:
    sampling = question("sample-0", InputKind.SAMPLING, {"messages": MESSAGES, "maxTokens": 20, "temperature": 0.5})
    asked = got(view_with_questions(question(), sampling, question("roots-0", InputKind.ROOTS, {})))["inputRequests"]
    assert list(asked) == ["elicit-0", "sample-0", "roots-0"]
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
    assert asked["elicit-0"] == {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": "Publish it?", "requestedSchema": schema},
    }
    params = {"messages": MESSAGES, "maxTokens": 20, "temperature": 0.5}
    assert asked["sample-0"] == {"method": "sampling/createMessage", "params": params}
    assert asked["roots-0"] == {"method": "roots/list", "params": {}}


def test_answered_questions_do_not_show() -> None:
    assert list(got(view_with_questions(question("a"), question("b"), answered=("a",)))["inputRequests"]) == ["b"]
    answer = got(view_with_questions(question("a"), question("b"), answered=("a", "b")))
    assert answer["status"] == "working"
    assert "inputRequests" not in answer


@pytest.mark.parametrize(
    "request_", [{"message": "Go on?"}, {"message": "Go on?", "requestedSchema": {"type": "object"}}]
)
def test_a_form_without_fields_has_a_complete_schema(request_: Json) -> None:
    params = got(view_with_questions(question(request=request_)))["inputRequests"]["elicit-0"]["params"]
    assert params["requestedSchema"] == {"type": "object", "properties": {}}


def test_a_url_elicitation_has_no_form() -> None:
    request: Json = {"mode": "url", "message": "Sign in.", "url": "https://issuer.example/in", "elicitationId": "1"}
    assert got(view_with_questions(question(request=request)))["inputRequests"]["elicit-0"]["params"] == request


def test_a_sampling_request_without_a_limit_gets_a_default_and_nulls_are_omitted() -> None:
    request: Json = {"messages": MESSAGES, "maxTokens": None, "systemPrompt": None}
    params = got(view_with_questions(question(kind=InputKind.SAMPLING, request=request)))["inputRequests"]["elicit-0"][
        "params"
    ]
    assert params == {"messages": MESSAGES, "maxTokens": 1_000}


def test_a_timestamp_is_in_utc_with_milliseconds() -> None:
    elsewhere = START.astimezone(timezone(timedelta(hours=2))) + timedelta(microseconds=123_999)
    fields = v2026.task_fields(created_task().evolve(created_at=elsewhere), poll_ms=500)
    assert (fields["createdAt"], fields["lastUpdatedAt"]) == ("2026-07-28T10:30:00.123Z", "2026-07-28T10:30:00.000Z")


TTLS = {
    timedelta(seconds=60): 60_000,
    timedelta(microseconds=1_500_001): 1_501,
    timedelta(microseconds=1): 1,
    timedelta(0): 1,
    timedelta(days=24, hours=20, minutes=31, seconds=23, milliseconds=648): 2**31,
    timedelta(days=25): 2_160_000_000,
    timedelta(days=50): 4_320_000_000,
    MAX_KEEP: 315_360_000_000,
}


@pytest.mark.parametrize(("promised", "expected"), TTLS.items(), ids=str)
def test_a_ttl_is_rounded_up_to_whole_milliseconds(promised: timedelta, expected: int) -> None:
    task = created_task().evolve(expires_at=START + promised)
    assert v2026.task_fields(task, poll_ms=500)["ttlMs"] == expected
    assert timedelta(milliseconds=expected) >= promised


def test_a_task_without_a_deadline_has_no_ttl_until_it_ends() -> None:
    assert got(VIEWS["running"])["ttlMs"] is None
    assert got(VIEWS["completed"])["ttlMs"] == 86_400_000
    bounded = created_task(deadline_at=at(600), retention=Retention(keep=timedelta(seconds=60)))
    assert v2026.create_result(bounded, poll_ms=500)["ttlMs"] == 660_000


@pytest.mark.parametrize(("asked", "expected"), [(500, 500), (1, 1), (0, 1), (-5, 1), (2**60, 2**53 - 1)])
def test_a_poll_interval_is_a_positive_integer_that_is_exact_for_every_reader(asked: int, expected: int) -> None:
    assert got(VIEWS["running"], poll_ms=asked)["pollIntervalMs"] == expected


def test_a_poll_interval_that_is_no_number_is_refused() -> None:
    for wrong in (math.nan, math.inf):
        with pytest.raises((ValueError, OverflowError)):
            v2026.task_fields(created_task(), poll_ms=cast("int", wrong))
    assert isinstance(v2026.task_fields(created_task(), poll_ms=cast("int", 500.0)).get("pollIntervalMs"), int)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
errors = json_values | st.fixed_dictionaries(
    {"kind": st.sampled_from(["protocol", "error", "timeout"]), "message": json_values | st.text()},
    optional={"code": st.integers() | json_values, "data": json_values, "error_id": st.text()},
)
moments = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - it adds one
spans = st.timedeltas(timedelta(0), MAX_KEEP)


@st.composite
def views(draw: st.DrawFn) -> View:
    """A task made at any moment, with any deadline and retention, that ended in any way or did not."""
    now = draw(moments)
    retention = Retention(draw(spans), draw(st.none() | spans))
    deadline = draw(st.none() | spans.map(lambda span: now + span + timedelta(microseconds=1)))
    task: Task = created_task(now=now, retention=retention, deadline_at=deadline)
    if draw(st.booleans()):
        return view_after(task)
    task = view_after(task, CLAIM).task
    message = draw(st.none() | st.text())
    later = now + draw(spans)
    command = draw(
        st.builds(Note, st.just(1), status_message=st.just(message or "…"), input_requests=st.just((question(),)))
        | st.builds(Complete, st.just(1), json_values.map(encode), st.booleans(), st.just(message))
        | st.builds(Fail, st.just(1), errors.map(encode), st.just(message or ""), st.just(False))
        | st.builds(Cancel, st.just("alice"), st.just(message))
    )
    return view_after(task, command, now=later)


@pytest.mark.requirement("wire-field-names")
@given(views(), st.integers())
@example(View(VIEWS["completed"].task, cast("Payload", b"null"), ()), 1)
def test_every_outcome_has_a_valid_answer(view: View, poll_ms: int) -> None:
    answer = got(view, poll_ms)
    assert not [key for key, value in answer.items() if value is None and key != "ttlMs"]
    for key in ("ttlMs", "pollIntervalMs"):
        assert answer[key] is None or (type(answer[key]) is int and 0 < answer[key] < 2**53)
    for key in ("createdAt", "lastUpdatedAt"):
        assert answer[key].endswith("Z")
        assert datetime.fromisoformat(answer[key]).tzinfo is not None
    assert answer["createdAt"] <= answer["lastUpdatedAt"]
    if answer["status"] == "failed":
        assert answer["statusMessage"]
        assert type(answer["error"]["code"]) is int
    if answer["status"] == "completed":
        validate("CallToolResult", answer["result"])


@given(views())
def test_the_expiry_that_a_caller_computes_is_within_a_millisecond_of_the_stored_one(view: View) -> None:
    answer, ttl = got(view), view.task.ttl
    if ttl is not None:
        end = datetime.fromisoformat(answer["createdAt"]) + timedelta(milliseconds=answer["ttlMs"])
        assert abs(end - (view.task.created_at + ttl)) <= timedelta(milliseconds=1)
