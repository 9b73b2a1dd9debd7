"""Tasks as the protocol of 2025-11-25 has them: the caller asks for one, and fetches its result."""

from dataclasses import replace

from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CallToolResult,
)

from raincheck.client.errors import BadAnswer
from raincheck.client.protocols.base import (
    Answers,
    Anything,
    Begun,
    Call,
    Listing,
    ask_about,
    call_raw,
    call_tool,
    checking,
    read_call,
    read_result,
    reading,
)
from raincheck.client.protocols.models import OlderCreated, OlderTask
from raincheck.client.tracker import Heard, Held
from raincheck.client.transport_errors import loss_of, read_refusal
from raincheck.client.updates import Question, Update
from raincheck.core.lifecycle import Status


class Tier2025:
    """For servers that declare tasks of tools."""

    def __init__(self, heard: Heard, listing: Listing) -> None:
        self._heard = heard
        self._listing = listing

    async def begin(self, client: Client, call: Call) -> Begun:
        is_known = self._listing.is_known(client)
        try:
            return await self._begin(client, call)
        except MCPError as error:
            # So a server refuses what its tool does not allow, before anything is done. It may have changed its mind
            # since it listed them. If not, the tool itself has said it, and is not called twice for that.
            if error.error.code != METHOD_NOT_FOUND or not is_known:
                raise
            before = (await self._listing.find(client, call.tool)).task_support
            self._listing.forget(client)
            if (await self._listing.find(client, call.tool)).task_support == before:
                raise
            return await self._begin(client, call)

    async def _begin(self, client: Client, call: Call) -> Begun:
        if (await self._listing.find(client, call.tool)).task_support == "forbidden":
            return await call_tool(client, call)
        token = self._heard.new_token()
        params = {
            "name": call.tool,
            "arguments": dict(call.arguments),
            "task": {} if call.ttl is None else {"ttl": round(call.ttl * 1_000)},
            "_meta": {**call.meta, "progressToken": token},
        }
        answer = await call_raw(client, params)
        if "task" in answer:
            with reading("the task that the server made"):
                task = OlderCreated.model_validate(answer, by_name=False).task
            return Begun(task_id=task.task_id, tier="2025-11-25", token=token)
        # It may always answer at once.
        result = read_result(answer)
        if not result.is_error:
            with checking(call.tool):
                await client.session.validate_tool_result(call.tool, result)
        return read_call(result)

    async def look(self, client: Client, held: Held) -> Update:
        known = held.asked.in_progress
        task = await ask_about(client, "tasks/get", held.task_id, OlderTask)
        update = replace(held.with_progress(task.update()), asks_itself=True)
        if update.status is not Status.INPUT_REQUIRED:
            held.asked.forget(known)
            return update
        return replace(update, questions=tuple(held.asked.by_hand.values()))

    async def fetch(self, client: Client, held: Held, update: Update) -> CallToolResult:
        answer = await ask_about(client, "tasks/result", held.task_id, Anything)
        result = answer.model_dump(by_alias=True, mode="json", exclude_unset=True)
        if update.status is Status.FAILED and "content" not in result:
            # Some servers have nothing more to say than this.
            raise MCPError(INTERNAL_ERROR, update.message or "the task has failed")
        return read_result(result)

    async def attend(self, client: Client, held: Held, question: Question | None) -> bool:
        del question
        # While somebody waits for the result, the server asks, and the SDK has its callbacks answer. What comes of it
        # is fetched when the task has ended.
        before = held.asked.waited_for
        try:
            await ask_about(client, "tasks/result", held.task_id, Anything)
        except BadAnswer:
            raise
        except MCPError as error:
            # One that has answered, be it so, can still take what it has asked for.
            if loss_of(error) is not None:
                held.asked.break_off(before)
            return False
        except BaseException:
            held.asked.break_off(before)
            raise
        return True

    async def answer(self, client: Client, held: Held, answers: Answers) -> None:
        del client
        for key, answer in answers.items():
            held.asked.give(key, answer)

    async def cancel(self, client: Client, held: Held) -> None:
        try:
            await ask_about(client, "tasks/cancel", held.task_id, Anything)
        except MCPError as error:
            if error.error.code != INVALID_PARAMS:
                raise
            if (await self.look(client, held)).is_ended:
                return
            refused = read_refusal(held.task_id, error.error.data)
            if refused is None:
                raise
            raise refused from error

    async def listen(self, client: Client, held: Held, update: Update) -> bool:
        """Servers of 2025-11-25 tell by themselves, if they do."""
        del client, held, update
        return False
