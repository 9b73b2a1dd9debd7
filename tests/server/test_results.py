"""Results and errors of tools: how a task stores them, and what other tasks get."""

import pytest
from mcp.server.mcpserver.exceptions import ToolError as SdkToolError
from mcp.server.mcpserver.exceptions import UnexpectedToolError
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent

from raincheck.core.values import Json
from raincheck.errors import ProtocolError, ToolError
from raincheck.server.results import SdkErrorMapping, as_json, describe_failure, encode_result, text_of, value_of


def result(text: str, **fields: Json) -> CallToolResult:
    return CallToolResult.model_validate({"content": [TextContent(type="text", text=text)], **fields})


def test_a_result_is_stored_without_fields_of_one_protocol_version() -> None:
    stored = encode_result(result("done", structuredContent={"pages": 3}))
    assert stored == {
        "content": [{"type": "text", "text": "done"}],
        "structuredContent": {"pages": 3},
        "isError": False,
    }


def test_a_result_that_reports_an_error_is_stored_as_an_error_with_content() -> None:
    with pytest.raises(ToolError, match="no paper") as caught:
        encode_result(result("no paper", isError=True))
    assert caught.value.content == {"content": [{"type": "text", "text": "no paper"}], "isError": True}


def test_no_result_is_stored_as_a_result_without_content() -> None:
    assert encode_result(None) == {"content": []}


@pytest.mark.parametrize(
    ("stored", "value"),
    [
        ({"content": [], "structuredContent": {"result": 3}}, 3),
        ({"content": [], "structuredContent": {"result": 3, "more": 4}}, {"result": 3, "more": 4}),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"content": []}, None),
        (["not", "a", "result"], ["not", "a", "result"]),
    ],
)
def test_another_task_gets_the_value_that_was_returned(stored: Json, value: Json) -> None:
    assert value_of(stored) == value


def test_a_result_without_text_has_a_default_text() -> None:
    assert text_of({"content": [{"type": "image", "data": "", "mimeType": "image/png"}]}) == "the tool reports an error"


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (ToolError("no paper"), ToolError),
        (SdkToolError("no paper"), ToolError),
        (MCPError(-32050, "no paper", {"tray": 2}), ProtocolError),
    ],
)
def test_errors_that_a_body_raises_on_purpose_are_converted(raised: Exception, expected: type[Exception]) -> None:
    with pytest.raises(expected, match="no paper") as caught, SdkErrorMapping():
        raise raised
    if isinstance(caught.value, ProtocolError):
        assert (caught.value.code, caught.value.data) == (-32050, {"tray": 2})
    else:
        assert isinstance(caught.value, ToolError)
        assert caught.value.content == {"content": [{"type": "text", "text": "no paper"}], "isError": True}


def test_a_crash_that_the_sdk_wrapped_is_unwrapped() -> None:
    with pytest.raises(OSError, match="disk"), SdkErrorMapping():
        raise UnexpectedToolError("Error executing tool print") from OSError("disk")


def test_a_crash_before_the_task_is_not_revealed(caplog: pytest.LogCaptureFixture) -> None:
    expected = describe_failure("print", OSError("/secret/path"))
    assert as_json(expected) == {"content": [{"type": "text", "text": "Error executing tool print"}], "isError": True}
    assert "/secret/path" in caplog.text, "its operator reads it"
