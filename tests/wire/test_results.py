"""The result of a completed task is a valid tool result for every stored outcome."""

from typing import Any

import pytest

from raincheck.core.commands import Complete
from raincheck.core.values import Json, encode
from raincheck.wire import v2026
from tests.support.schemas import validate
from tests.support.wire.snapshots import running_task, view_after

TEXT: Json = {"type": "text", "text": "2 rows"}
RELATED = "io.modelcontextprotocol/related-task"


def result_of(outcome: Json, *, is_error: bool = False, message: str | None = None) -> dict[str, Any]:
    view = view_after(running_task(), Complete(1, encode(outcome), is_error, message))
    answer: Any = v2026.get_result(view, poll_ms=500)
    validate("GetTaskResult", answer)
    validate("CallToolResult", answer["result"])
    assert answer["status"] == "completed"
    return answer["result"]


STORED: list[dict[str, Json]] = [
    {"content": [], "resultType": "complete"},
    {"content": [TEXT], "isError": False, "resultType": "complete", "_meta": {"example/rows": 2}},
    {"content": [TEXT], "structuredContent": {"rows": 2}, "resultType": "complete"},
    {"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}], "resultType": "complete"},
    {"content": [{"type": "resource_link", "name": "a", "uri": "file:///a"}], "resultType": "complete"},
]


@pytest.mark.requirement("get-completed", "completed-result-is-the-calls")
@pytest.mark.parametrize("stored", STORED)
def test_a_stored_tool_result_is_returned_unchanged(stored: dict[str, Json]) -> None:
    assert result_of(stored) == stored


@pytest.mark.requirement("tool-error-is-completed", "failed-is-for-protocol-errors")
def test_a_tool_error_is_a_completed_task_that_keeps_its_content() -> None:
    stored: dict[str, Json] = {"content": [TEXT], "isError": True, "resultType": "complete"}
    assert result_of(stored, is_error=True, message="2 rows") == stored
    assert result_of({"content": [TEXT]}, is_error=True) == stored


def test_a_tool_error_with_only_a_message_is_text_for_the_model() -> None:
    expected = {"content": [{"type": "text", "text": "no rows"}], "isError": True, "resultType": "complete"}
    assert result_of({"message": "no rows"}, is_error=True, message="no rows") == expected


def test_a_tool_error_with_structured_content_has_its_text_and_the_content() -> None:
    result = result_of({"missing": ["rows"]}, is_error=True, message="no rows")
    assert [block["text"] for block in result["content"]] == ["no rows", '{"missing": ["rows"]}']
    assert result["structuredContent"] == {"missing": ["rows"]}
    assert result["isError"] is True
    assert [block["text"] for block in result_of("no rows", is_error=True)["content"]] == ["no rows"]


WRAPPED: list[tuple[Json, str, Json]] = [
    ("großartig", "großartig", {"result": "großartig"}),
    ({"rows": 2, "über": None}, '{"rows": 2, "über": null}', {"rows": 2, "über": None}),
    ([1, 2], "[1, 2]", {"result": [1, 2]}),
    (7, "7", {"result": 7}),
    (True, "true", {"result": True}),
    (None, "null", {"result": None}),
    ({"message": "hello"}, '{"message": "hello"}', {"message": "hello"}),
]


@pytest.mark.parametrize(("outcome", "text", "structured"), WRAPPED)
def test_a_result_of_any_other_shape_is_returned_as_text_and_as_structure(
    outcome: Json, text: str, structured: Json
) -> None:
    expected = {"content": [{"type": "text", "text": text}], "structuredContent": structured, "resultType": "complete"}
    assert result_of(outcome) == expected


@pytest.mark.parametrize(
    "outcome",
    [
        {"content": "a chapter"},
        {"content": ""},
        {"content": [{"type": "chapter"}]},
        {"content": ["a", "b"]},
        {"content": [], "page": 3},
        {"content": None},
        {"structuredContent": {}},
    ],
)
def test_something_of_a_tools_own_that_happens_to_have_content_is_not_taken_for_a_result(outcome: Json) -> None:
    assert result_of(outcome)["structuredContent"] == outcome


@pytest.mark.requirement("no-related-task-meta")
def test_a_result_inside_its_task_does_not_name_the_task_again() -> None:
    stored: dict[str, Json] = {"content": [TEXT], "_meta": {RELATED: {"taskId": "task-1"}, "example/rows": 2}}
    assert result_of(stored)["_meta"] == {"example/rows": 2}


@pytest.mark.requirement("no-task-result-type-elsewhere")
@pytest.mark.parametrize("stored", [{"content": [TEXT]}, {"content": [TEXT], "resultType": "task"}])
def test_a_result_inside_its_task_is_a_complete_one(stored: Json) -> None:
    assert result_of(stored)["resultType"] == "complete"
