"""Tasks as the extension of 2026-07-28 has them."""

from typing import Any

from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ErrorData, Request
from pydantic import BaseModel

from raincheck.client.errors import BadAnswer
from raincheck.client.options import REQUESTS
from raincheck.client.protocols.base import Answers, Anything, Begun, Call, ask_about, call_tool, read_result, reading
from raincheck.client.protocols.models import Shown
from raincheck.client.tracker import Held
from raincheck.client.transport_errors import check_acknowledged, loss_of
from raincheck.client.updates import Question, Update


class ListenRequest(Request[dict[str, Any], str]):
    """A request that lasts, and during which the server tells of changes."""


class Tier2026:
    """For servers that declare the extension."""

    async def begin(self, client: Client, call: Call) -> Begun:
        return await call_tool(client, call)

    async def look(self, client: Client, held: Held) -> Update:
        asked = held.consulting.asked
        update = (await ask_about(client, "tasks/get", held.task_id, Shown)).update()
        # Somebody else has answered: whoever thinks about it need not. What was asked meanwhile this can't tell of.
        held.consulting.withdraw(asked - {question.key for question in update.questions})
        return update

    async def fetch(self, client: Client, held: Held, update: Update) -> CallToolResult:
        del client
        if update.error is not None:
            raise update.error
        if update.result is None:
            raise BadAnswer(f"task {held.task_id!r} has ended ({update.status}), and the server tells no result")
        return read_result(update.result)

    async def attend(self, client: Client, held: Held, question: Question | None) -> bool:
        if question is None:
            return False
        key, consulting = question.key, held.consulting
        # What was answered before is sent again: it did not arrive, or not when this was seen.
        if key not in consulting.answers:
            if not consulting.is_given(key):
                await consulting.ask(key, lambda: _asked(client, question))
            if consulting.is_given(key):
                # By hand, or by another who waits for the same.
                return False
        await self.answer(client, held, {key: consulting.answers[key]})
        return True

    async def answer(self, client: Client, held: Held, answers: Answers) -> None:
        given = {key: dict(answer) for key, answer in answers.items()}
        with held.consulting.giving(given):
            await ask_about(client, "tasks/update", held.task_id, Anything, inputResponses=given)

    async def cancel(self, client: Client, held: Held) -> None:
        answer = await ask_about(client, "tasks/cancel", held.task_id, Anything)
        check_acknowledged(held.task_id, answer.meta)

    async def listen(self, client: Client, held: Held, update: Update) -> bool:
        del update
        params = {"notifications": {"taskIds": [held.task_id]}}
        try:
            await client.session.send_request(ListenRequest(method="subscriptions/listen", params=params), Anything)
        except MCPError as error:
            return loss_of(error) is not None
        return True


async def _asked(client: Client, question: Question) -> dict[str, Any]:
    """What the client's callback answers.

    Raises:
        MCPError: it refuses to.
    """
    with reading(f"the question {question.key!r}"):
        request = REQUESTS[question.method].model_validate(dict(question.request), by_name=False)
    context = ClientRequestContext(session=client.session, request_id=question.key)
    answer = await client.session.dispatch_input_request(context, request)
    if isinstance(answer, ErrorData):
        raise MCPError.from_error_data(answer)
    assert isinstance(answer, BaseModel)  # noqa: S101 - as the SDK's types say
    return answer.model_dump(by_alias=True, mode="json", exclude_none=True)
