"""Tasks for callers without any: the server tells of one in words, and offers tools to go on with it."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from raincheck.client.errors import BadAnswer
from raincheck.client.protocols.base import Answers, Begun, Call, call_tool, checking, reading
from raincheck.client.protocols.models import read_progress
from raincheck.client.tracker import Held
from raincheck.client.transport_errors import check_spoken
from raincheck.client.updates import Question, Update
from raincheck.core.lifecycle import Status
from raincheck.errors import InvalidValue, TaskNotFound
from raincheck.wire.fallback_text import HANDLE
from raincheck.wire.fields import as_list, as_object

_METHODS = {"reply": "sampling/createMessage", "roots": "roots/list"}
"""What the kinds of questions are called elsewhere. All others are forms and links."""


class TierPlain:
    """For all others. On a server that knows nothing of tasks, a call is answered when it is done."""

    async def begin(self, client: Client, call: Call) -> Begun:
        return await call_tool(client, call)

    async def look(self, client: Client, held: Held) -> Update:
        return _read(await self._call(client, held, "status"), held.task_id)

    async def fetch(self, client: Client, held: Held, update: Update) -> CallToolResult:
        del update
        return await self._call(client, held, "result")

    async def attend(self, client: Client, held: Held, question: Question | None) -> bool:
        del question
        # While somebody waits, the server asks whoever can be asked. What comes of it is fetched later.
        with suppress(MCPError):
            # The result itself stands for no task.
            return HANDLE not in ((await self._call(client, held, "wait")).meta or {})
        return False

    async def answer(self, client: Client, held: Held, answers: Answers) -> None:
        for key, answer in answers.items():
            result = await self._call(client, held, "answer", key=key, **_spoken(answer))
            if result.is_error:
                raise InvalidValue(_text(result))

    async def cancel(self, client: Client, held: Held) -> None:
        check_spoken(held.task_id, _text(await self._call(client, held, "cancel")))

    async def listen(self, client: Client, held: Held, update: Update) -> bool:
        if update.status is Status.WORKING:
            await self._call(client, held, "wait")
            held.changed()
        return True

    async def _call(self, client: Client, held: Held, use: str, **more: Any) -> CallToolResult:  # noqa: ANN401 - arguments of a tool
        tool = held.slip.tools.get(use)
        if tool is None:
            raise TaskNotFound(held.task_id)
        with reading(f"the answer of {tool}"), checking(tool):
            return await client.call_tool(tool, {"task_id": held.task_id, **more})


def _read(result: CallToolResult, task_id: str) -> Update:
    """What a tool tells of a task.

    Raises:
        TaskNotFound: that there is none.
        BadAnswer: something else.
    """
    if result.is_error:
        raise TaskNotFound(task_id)
    facts = as_object(result.structured_content)
    message = facts.get("message")
    try:
        return Update(
            task_id=str(facts["task_id"]),
            status=Status(str(facts["status"])),
            message=message if isinstance(message, str) else None,
            progress=read_progress(facts.get("progress"), facts.get("total")),
            asks_itself=True,
            questions=tuple(_question(as_object(one)) for one in as_list(facts.get("questions"))),
        )
    except (KeyError, ValueError) as error:
        raise BadAnswer(f"what the server tells of task {task_id!r} is ill-formed: {error!r}") from error


def _question(facts: Mapping[str, Any]) -> Question:
    params = {name: value for name, value in facts.items() if name not in ("key", "kind")}
    method = _METHODS.get(str(facts.get("kind")), "elicitation/create")
    return Question(str(facts["key"]), {"method": method, "params": params})


def _spoken(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer of the protocol, as the tool takes it."""
    if "action" in answer:
        is_accepted = answer["action"] == "accept"
        return {"answer": answer.get("content") or {}} if is_accepted else {"action": answer["action"]}
    said = as_object(answer.get("content"))
    return {"answer": {"text": said.get("text", "")} if said else dict(answer)}


def _text(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")
