"""A server with what the official suite's core scenarios ask for: `python core_server.py [--port N] [--with-tasks]`.

It stands on the plain SDK. `--with-tasks` attaches raincheck and changes nothing else, so whatever the suite then says
differently is our doing.
"""

# pyright: reportUnusedFunction=false

import argparse
import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, cast

# Run as a script, it has only its own folder to import from.
sys.path.insert(0, str(Path(__file__).parents[3]))

from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.server.mcpserver.resolve import Elicit, ElicitationResult, Resolve, Sample
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.types import Audio, Image
from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp_types import (
    Completion,
    CreateMessageResult,
    EmbeddedResource,
    EmptyResult,
    JSONRPCMessage,
    SamplingMessage,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    TextResourceContents,
    UnsubscribeRequestParams,
)
from pydantic import BaseModel, Field

from tests.support.interop import core_rounds

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
SILENCE = base64.b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=")

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


# --- Tools that answer at once ---


def test_simple_text() -> str:
    """Answers with text."""
    return "This is a simple text response for testing."


def test_image_content() -> Image:
    """Answers with an image."""
    return Image(data=PIXEL, format="png")


def test_audio_content() -> Audio:
    """Answers with a sound."""
    return Audio(data=SILENCE, format="wav")


def test_embedded_resource() -> EmbeddedResource:
    """Answers with a resource."""
    return embed("test://embedded-resource", "text/plain", "This is an embedded resource content.")


def test_multiple_content_types() -> list[TextContent | Image | EmbeddedResource]:
    """Answers with a text, an image and a resource."""
    text = TextContent(type="text", text="Multiple content types test:")
    data = embed("test://mixed-content-resource", "application/json", json.dumps({"test": "data", "value": 123}))
    return [text, Image(data=PIXEL, format="png"), data]


def test_error_handling() -> str:
    """Always fails."""
    raise ToolError("This tool intentionally returns an error for testing")


def test_header(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """Takes an argument that callers repeat in a header."""
    return f"in {region}"


# --- Tools that say something on the way ---


async def test_tool_with_logging(ctx: Context) -> str:
    """Logs three lines."""
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(line)  # pyright: ignore[reportDeprecated] - the older revision asks for it
        await asyncio.sleep(0.05)
    return "logged three lines"


async def test_logging_tool(ctx: Context) -> str:
    """Logs one line."""
    await ctx.info("Only those who asked for it read this")  # pyright: ignore[reportDeprecated] - likewise
    return "logged one line"


async def test_tool_with_progress(ctx: Context) -> str:
    """Reports progress."""
    for done in (0, 50, 100):
        await ctx.report_progress(done, 100, f"{done} of 100")
        await asyncio.sleep(0.05)
    return "reported progress"


async def test_reconnection(ctx: Context) -> str:
    """Closes the caller's stream before it answers."""
    await ctx.close_sse_stream()
    await asyncio.sleep(0.1)
    return "answered on another stream"


async def test_trigger_tool_change(ctx: Context) -> str:
    """Says that the tools have changed."""
    await ctx.notify_tools_changed()
    return "said so"


async def test_trigger_prompt_change(ctx: Context) -> str:
    """Says that the prompts have changed."""
    await ctx.notify_prompts_changed()
    return "said so"


# --- Tools that ask the caller ---


class Contact(BaseModel):
    username: str = Field(description="User's response")
    email: str = Field(description="User's email address")


class Defaults(BaseModel):
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


def titled(keyword: str, *titles: str) -> dict[str, Any]:
    return {keyword: [{"const": f"value{number}", "title": title} for number, title in enumerate(titles, start=1)]}


def only_titled(schema: dict[str, Any]) -> None:
    """A list whose items are nothing but choices with titles."""
    schema["items"] = titled("anyOf", "First Choice", "Second Choice", "Third Choice")


class Enums(BaseModel):
    untitledSingle: Literal["option1", "option2", "option3"]  # noqa: N815 - named by the suite, as the next four
    titledSingle: str = Field(json_schema_extra=titled("oneOf", "First Option", "Second Option"))  # noqa: N815
    legacyEnum: Literal["opt1", "opt2", "opt3"] = Field(  # noqa: N815
        json_schema_extra={"enumNames": ["Option One", "Option Two", "Option Three"]}
    )
    untitledMulti: list[Literal["option1", "option2", "option3"]]  # noqa: N815
    titledMulti: list[str] = Field(json_schema_extra=only_titled)  # noqa: N815


def ask_model(prompt: str) -> Sample:
    return Sample([SamplingMessage(role="user", content=TextContent(type="text", text=prompt))], max_tokens=100)


def ask_model_anything() -> Sample:
    return ask_model("Anything?")


def ask_contact(message: str) -> Elicit[Contact]:
    return Elicit(message, Contact)


def ask_contact_again() -> Elicit[Contact]:
    return ask_contact("Who are you?")


def ask_defaults() -> Elicit[Defaults]:
    return Elicit("Is this right?", Defaults)


def ask_enums() -> Elicit[Enums]:
    return Elicit("Which ones?", Enums)


def test_sampling(prompt: str, reply: Annotated[CreateMessageResult, Resolve(ask_model)]) -> str:  # noqa: ARG001 - the resolver takes it
    """Asks the caller's model."""
    return f"LLM response: {reply.content.text if isinstance(reply.content, TextContent) else ''}"


def test_missing_capability(reply: Annotated[CreateMessageResult, Resolve(ask_model_anything)]) -> str:
    """Can't be called by those who have no model to ask."""
    return reply.model


def test_elicitation(message: str, reply: Annotated[ElicitationResult[Contact], Resolve(ask_contact)]) -> str:  # noqa: ARG001 - likewise
    """Asks the user."""
    return f"User response: {describe(reply)}"


def test_streaming_elicitation(reply: Annotated[ElicitationResult[Contact], Resolve(ask_contact_again)]) -> str:
    """Asks the user, too."""
    return describe(reply)


def test_elicitation_sep1034_defaults(reply: Annotated[ElicitationResult[Defaults], Resolve(ask_defaults)]) -> str:
    """Asks the user, with defaults."""
    return f"Elicitation completed: {describe(reply)}"


def test_elicitation_sep1330_enums(reply: Annotated[ElicitationResult[Enums], Resolve(ask_enums)]) -> str:
    """Asks the user to choose."""
    return f"Elicitation completed: {describe(reply)}"


def describe(reply: ElicitationResult[Any]) -> str:
    return f"action={reply.action}, content={reply.data.model_dump_json() if reply.action == 'accept' else '{}'}"


TOOLS = (
    test_simple_text,
    test_image_content,
    test_audio_content,
    test_embedded_resource,
    test_multiple_content_types,
    test_error_handling,
    test_header,
    test_tool_with_logging,
    test_logging_tool,
    test_tool_with_progress,
    test_reconnection,
    test_trigger_tool_change,
    test_trigger_prompt_change,
    test_sampling,
    test_missing_capability,
    test_elicitation,
    test_streaming_elicitation,
    test_elicitation_sep1034_defaults,
    test_elicitation_sep1330_enums,
    *core_rounds.TOOLS,
)


def tool_with_schema() -> Tool:
    """A tool whose schema uses more of JSON Schema than a function's signature can say."""

    def json_schema_2020_12_tool(name: str = "") -> str:
        """Takes a contact."""
        return name

    return Tool.from_function(json_schema_2020_12_tool).model_copy(update={"parameters": SCHEMA})


# --- Resources, prompts and the rest ---


def embed(uri: str, mime_type: str, text: str) -> EmbeddedResource:
    return EmbeddedResource(type="resource", resource=TextResourceContents(uri=uri, mime_type=mime_type, text=text))


def add_resources(mcp: MCPServer) -> None:
    @mcp.resource("test://static-text", mime_type="text/plain")
    def static_text() -> str:
        """A text that stays the same."""
        return "This is the content of the static text resource."

    @mcp.resource("test://static-binary", mime_type="image/png")
    def static_binary() -> bytes:
        """An image that stays the same."""
        return PIXEL

    @mcp.resource("test://watched-resource", mime_type="text/plain")
    def watched_resource() -> str:
        """What can be subscribed to."""
        return "watched"

    @mcp.resource("test://template/{id}/data", mime_type="application/json")
    def template(id: str) -> str:
        """What depends on an id."""
        return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


def add_prompts(mcp: MCPServer) -> None:
    @mcp.prompt()
    def test_simple_prompt() -> str:
        """A prompt without arguments."""
        return "This is a simple prompt for testing."

    @mcp.prompt()
    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        """A prompt with two arguments."""
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @mcp.prompt()
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:  # noqa: N803
        """A prompt with a resource."""
        resource = embed(resourceUri, "text/plain", "Embedded resource content for testing.")
        return [UserMessage(resource), UserMessage("Please process the embedded resource above.")]

    @mcp.prompt()
    def test_prompt_with_image() -> list[UserMessage]:
        """A prompt with an image."""
        return [UserMessage(Image(data=PIXEL, format="png")), UserMessage("Please analyze the image above.")]

    mcp.prompt()(core_rounds.test_input_required_result_prompt)

    @mcp.completion()
    async def complete(*_: object) -> Completion:
        return Completion(values=["paris", "park", "party"], total=3, has_more=False)


def add_what_only_the_older_revision_has(mcp: MCPServer) -> None:
    """`MCPServer` serves none of these methods; the server below it does."""

    async def agree(_: ServerRequestContext[Any], __: object) -> EmptyResult:
        return EmptyResult()

    server = mcp._lowlevel_server  # pyright: ignore[reportPrivateUsage] - there is no other way
    server.add_request_handler("logging/setLevel", SetLevelRequestParams, agree)
    server.add_request_handler("resources/subscribe", SubscribeRequestParams, agree)
    server.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, agree)


class Events(EventStore):
    """What was sent on every stream, so that a caller who lost one can go on."""

    def __init__(self) -> None:
        self.sent: list[tuple[StreamId, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        self.sent.append((stream_id, message))
        return str(len(self.sent) - 1)

    async def replay_events_after(self, last_event_id: EventId, send_callback: EventCallback) -> StreamId | None:
        stream, _ = self.sent[int(last_event_id)]
        for number, (name, message) in enumerate(self.sent[int(last_event_id) + 1 :], start=int(last_event_id) + 1):
            if name == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


def build(*, with_tasks: bool) -> MCPServer:
    mcp = MCPServer("everything", version="1", tools=[tool_with_schema()], log_level="WARNING")
    if with_tasks:
        from raincheck import Tasks

        Tasks(mcp, "memory:")
    for tool in TOOLS:
        mcp.add_tool(tool, structured_output=False)
    add_resources(mcp)
    add_prompts(mcp)
    add_what_only_the_older_revision_has(mcp)
    return mcp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--with-tasks", action="store_true")
    options = parser.parse_args()
    mcp = build(with_tasks=cast("bool", options.with_tasks))
    mcp.run("streamable-http", port=cast("int", options.port), event_store=Events(), retry_interval=500)


if __name__ == "__main__":
    main()
