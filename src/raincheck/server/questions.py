"""Questions of a task whose caller waits on a connection that takes requests, as before 2026: asked there and then."""

import asyncio
from contextlib import aclosing, suppress
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import CreateMessageRequest, ElicitRequest, ListRootsRequest, Result, ServerRequest
from pydantic import ConfigDict, TypeAdapter, ValidationError

from raincheck.core.records import Task
from raincheck.engine import Engine
from raincheck.engine.timing import pause_after
from raincheck.errors import IllegalTransition, InvalidValue, StoreUnavailable
from raincheck.server.sdk import AnyContext
from raincheck.wire import g2

_REQUEST: TypeAdapter[ServerRequest] = TypeAdapter(ElicitRequest | CreateMessageRequest | ListRootsRequest)


class _AsItCame(Result):
    """Whatever the caller answers: the engine checks it."""

    model_config = ConfigDict(extra="allow")


async def ask_directly(ctx: AnyContext, task: Task, engine: Engine) -> None:
    """Ask the caller what the task asks, one after the other, until it has ended.

    Raises:
        MCPError, InvalidValue: the caller refuses to be asked, or answers with something else. The task is cancelled.
    """
    async with aclosing(engine.follow(task.id, owner=task.owner)) as views:
        async for view in views:
            requests: dict[str, Any] = g2.detailed(view, poll_ms=1).get("inputRequests", {})  # type: ignore[assignment] # of a task that asks
            for key, request in requests.items():
                try:
                    await _answer(task, key, await _ask(ctx, request), engine)
                except (MCPError, InvalidValue, ValidationError) as error:
                    # It would wait for an answer that nobody gives any more.
                    with suppress(IllegalTransition):
                        await engine.cancel(task.id, owner=task.owner, reason="its caller can't be asked")
                    if isinstance(error, ValidationError):
                        raise InvalidValue(f"the answer to {key!r} is none") from error
                    raise


async def _ask(ctx: AnyContext, request: dict[str, Any]) -> dict[str, Any]:
    metadata = ServerMessageMetadata(related_request_id=ctx.request_id)
    answer = await ctx.session.send_request(_REQUEST.validate_python(request), _AsItCame, metadata=metadata)
    return answer.model_dump(by_alias=True, mode="json", exclude_none=True, exclude={"meta", "result_type"})


async def _answer(task: Task, key: str, told: dict[str, Any], engine: Engine) -> None:
    """Somebody took the trouble to answer, so a store that is away for a while is waited for."""
    tries = 0
    while True:
        try:
            # It may have ended meanwhile: then nobody needs the answer.
            with suppress(IllegalTransition):
                await engine.answer(task.id, {key: told}, owner=task.owner)
        except StoreUnavailable:
            tries += 1
            await asyncio.sleep(pause_after(tries))
        else:
            return
