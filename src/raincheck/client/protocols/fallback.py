"""Tasks by fallback tools: the server describes a task in a text, and offers tools to follow it."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from raincheck.client.errors import InvalidResponse
from raincheck.client.inputs import Question
from raincheck.client.protocols.base import (
    CANCEL_REFUSED_TEXT,
    Answers,
    TaskProtocol,
    map_schema_errors,
    map_validation_errors,
    read_progress,
)
from raincheck.client.tracker import TrackedTask, Update
from raincheck.core.lifecycle import Status
from raincheck.errors import CancelRefused, InvalidValue, TaskNotFound
from raincheck.wire.fallback_text import TASK_META_KEY
from raincheck.wire.fields import as_list, as_object

_METHODS = {"reply": "sampling/createMessage", "roots": "roots/list"}
"""The methods of the kinds of questions. All other kinds are forms and links."""


class FallbackProtocol(TaskProtocol):
    """For servers of all other kinds. A server without tasks answers a call when its work is done."""

    async def poll(self, client: Client, tracked: TrackedTask) -> Update:
        return _read(await self._call(client, tracked, "status"), tracked.task_id)

    async def fetch_result(self, client: Client, tracked: TrackedTask, update: Update) -> CallToolResult:
        del update
        return await self._call(client, tracked, "result")

    async def run_callbacks(self, client: Client, tracked: TrackedTask, question: Question | None) -> bool:
        del question
        # While a caller waits, the server sends its questions if it can. The outcome is fetched later.
        with suppress(MCPError):
            # Only a task that has not ended has a task key.
            return TASK_META_KEY not in ((await self._call(client, tracked, "wait")).meta or {})
        return False

    async def answer(self, client: Client, tracked: TrackedTask, answers: Answers) -> None:
        for key, answer in answers.items():
            result = await self._call(client, tracked, "answer", key=key, **_tool_arguments(answer))
            if result.is_error:
                raise InvalidValue(_text(result))

    async def cancel(self, client: Client, tracked: TrackedTask) -> None:
        refused = CANCEL_REFUSED_TEXT.search(_text(await self._call(client, tracked, "cancel")))
        if refused is not None:
            raise CancelRefused(tracked.task_id, refused[1], refused[2])

    async def listen(self, client: Client, tracked: TrackedTask, update: Update) -> bool:
        if update.status is Status.WORKING:
            await self._call(client, tracked, "wait")
            tracked.notify()
        return True

    async def _call(self, client: Client, tracked: TrackedTask, purpose: str, **arguments: Any) -> CallToolResult:  # noqa: ANN401 - arguments of a tool
        tool = tracked.task_ref.tools.get(purpose)
        if tool is None:
            raise TaskNotFound(tracked.task_id)
        with map_validation_errors(f"the result of {tool}"), map_schema_errors(tool):
            return await client.call_tool(tool, {"task_id": tracked.task_id, **arguments})


def _read(result: CallToolResult, task_id: str) -> Update:
    """Parse a fallback tool's result as the state of a task.

    Raises:
        TaskNotFound: there is no such task.
        InvalidResponse: the result is ill-formed.
    """
    if result.is_error:
        raise TaskNotFound(task_id)
    content = as_object(result.structured_content)
    message = content.get("message")
    try:
        return Update(
            task_id=str(content["task_id"]),
            status=Status(str(content["status"])),
            message=message if isinstance(message, str) else None,
            progress=read_progress(content.get("progress"), content.get("total")),
            server_asks=True,
            questions=tuple(_question(as_object(item)) for item in as_list(content.get("questions"))),
        )
    except (KeyError, ValueError) as error:
        raise InvalidResponse(f"the server's report of task {task_id!r} is ill-formed: {error!r}") from error


def _question(content: Mapping[str, Any]) -> Question:
    params = {name: value for name, value in content.items() if name not in ("key", "kind")}
    method = _METHODS.get(str(content.get("kind")), "elicitation/create")
    return Question(str(content["key"]), {"method": method, "params": params})


def _tool_arguments(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a protocol answer to the tool's arguments."""
    if "action" in answer:
        is_accepted = answer["action"] == "accept"
        return {"answer": answer.get("content") or {}} if is_accepted else {"action": answer["action"]}
    content = as_object(answer.get("content"))
    return {"answer": {"text": content.get("text", "")} if content else dict(answer)}


def _text(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")
