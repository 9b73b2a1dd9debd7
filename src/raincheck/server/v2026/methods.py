"""`subscriptions/listen` with `taskIds`: pushes what `tasks/get` would answer, whenever that changes.

The SDK serves `subscriptions/listen` and leaves out what it does not know of the filter, so this stands before it.
Where other kinds of events are asked for too, it lets the SDK's own handler serve them on the same stream, and adds the
tasks to what that acknowledges. It can go when the SDK lets extensions add kinds of events.

The methods of the extension of 2026-07-28: `tasks/get`, `tasks/update`, `tasks/cancel`.
"""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack, aclosing, suppress
from dataclasses import replace
from typing import Any, Literal, cast

from mcp.server.context import CallNext, HandlerResult
from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import (
    Notification,
    RequestId,
    RequestParams,
    ServerNotification,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsAcknowledgedNotificationParams,
)

from raincheck._async import see_through
from raincheck.core.owner import Owner
from raincheck.core.payload import Json
from raincheck.engine.execution.checkpoints import fingerprint
from raincheck.errors import CancelRefused, IllegalTransition, StoreUnavailable, TaskNotFound
from raincheck.server import audit
from raincheck.server.caller import is_modern, knows_tasks, routed_task
from raincheck.server.errors import Refusing, invalid_params, missing_capability
from raincheck.server.render import Showing
from raincheck.server.runtime import Running
from raincheck.server.sdk_compat import AnyContext
from raincheck.server.stream_limits import STREAMS, Places
from raincheck.tracebacks import text_logger
from raincheck.wire import v2026
from raincheck.wire.fields import state_meta


class G2Methods:
    """Answers for tasks, to whoever owns them."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._showing = Showing(running)

    async def get(self, ctx: AnyContext, _: RequestParams) -> HandlerResult:
        """How the task is."""
        owner = await self._running.owner_of(ctx)
        with Refusing(ctx, owner):
            task_id = routed_task(ctx)
            with self._running.pace.polling(owner, task_id):
                view = await self._running.engine.view(task_id, owner=owner)
            return await self._showing.translate(view, v2026.get_result)

    async def update(self, ctx: AnyContext, _: RequestParams) -> HandlerResult:
        """Take answers to open questions. Those to questions that are not open are ignored, whatever they are."""
        owner = await self._running.owner_of(ctx)
        with Refusing(ctx, owner):
            task_id = routed_task(ctx)
            answers = (ctx.params or {}).get("inputResponses")
            if not isinstance(answers, Mapping):
                raise invalid_params(f"{ctx.method} needs params.inputResponses, an object of answers by their keys")
            # One that has ended asks nothing any more, so there is nothing in it that is not ignored.
            with suppress(IllegalTransition):
                await self._running.engine.answer(task_id, cast("Mapping[str, Json]", answers), owner=owner)
        return cast("dict[str, Any]", v2026.ack())

    async def cancel(self, ctx: AnyContext, _: RequestParams) -> HandlerResult:
        """Stop the task, unless it has ended: a caller need not know which of the two was first."""
        owner = await self._running.owner_of(ctx)
        with Refusing(ctx, owner):
            task_id = routed_task(ctx)
            try:
                task = await self._running.engine.cancel(task_id, owner=owner)
                audit.note("cancelled", owner, task_id=task.id, tool=task.tool.name)
            except IllegalTransition:
                pass
            except CancelRefused as refused:
                return cast("dict[str, Any]", v2026.not_cancelled(refused))
        return cast("dict[str, Any]", v2026.ack())


logger = text_logger(__name__)

METHOD = "subscriptions/listen"

MOST_TASKS = 1_000
"""How many tasks one stream may be for."""

UNSEEN = ("lastUpdatedAt", "pollIntervalMs")
"""What alone is no news."""


class TaskNotification(Notification[dict[str, Any], Literal["notifications/tasks"]]):
    """A task, as `tasks/get` would show it now."""

    method: Literal["notifications/tasks"] = "notifications/tasks"
    params: dict[str, Any]


class Listening:
    """Serves streams of tasks' changes."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._showing = Showing(running)
        self._places = Places(STREAMS)

    async def __call__(self, ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        wanted = _filter_of(ctx)
        if wanted.get("taskIds") is None or not is_modern(ctx) or ctx.request_id is None:
            return await call_next(ctx)
        owner = await self._running.owner_of(ctx)
        with ExitStack() as stack:
            with Refusing(ctx, owner):
                if not knows_tasks(ctx):
                    raise missing_capability()
                task_ids = _check_ids(wanted["taskIds"])
                place = stack.enter_context(self._places.taken(owner, len(task_ids)))
                agreed = await self._agree_on(task_ids, owner)
                place.shrink(len(agreed))
            others = {kind: value for kind, value in wanted.items() if kind != "taskIds" and value}
            return await self._serve(_Stream(ctx, ctx.request_id, owner, agreed), call_next if others else None)

    async def _agree_on(self, task_ids: list[str], owner: Owner) -> list[str]:
        """Those of the ids that are this owner's. The others are left out, whatever they are."""
        agreed: list[str] = []
        for task_id in task_ids:
            try:
                await self._running.engine.task(task_id, owner=owner)
            except TaskNotFound:
                continue
            agreed.append(task_id)
        return agreed

    async def _serve(self, stream: "_Stream", call_next: CallNext | None) -> HandlerResult:
        """Serve one stream. One that is for tasks alone ends when they have ended; another when its caller leaves."""
        if call_next is None:
            await stream.acknowledge(SubscriptionFilter())
            await self._push(stream)
            return {"resultType": "complete", "_meta": stream.meta}
        pushing = asyncio.ensure_future(self._push(stream))
        try:
            return await call_next(replace(stream.ctx, session=cast("Any", _AcknowledgingSession(stream))))
        finally:
            pushing.cancel()
            await see_through(asyncio.wait([pushing]))

    async def _push(self, stream: "_Stream") -> None:
        """Send each task as it is, and again after each change that can be seen, until all have ended."""
        await stream.acknowledged.wait()
        # What was said last is compared, not kept: it may be large.
        said: dict[str, str] = {}
        try:
            async with aclosing(self._running.engine.follow_all(stream.task_ids, owner=stream.owner)) as views:
                async for view in views:
                    shown = cast(
                        "dict[str, Any]", v2026.detailed(view, poll_ms=self._running.pace.interval_ms(view.task))
                    )
                    seen = {name: value for name, value in shown.items() if name not in UNSEEN}
                    # A process may come back to a state, which is news.
                    news = fingerprint("news", seen, None if view.task.state is None else view.task.state.number)
                    if news != said.get(view.task.id):
                        said[view.task.id] = news
                        await self._showing.note(view)
                        await stream.send({**shown, "_meta": {**state_meta(view.task), **stream.meta}})
                    if view.task.is_terminal:
                        del said[view.task.id]
        except StoreUnavailable:
            logger.info("a stream of tasks ends: the engine has stopped")
        except Exception:
            # Streams promise nothing: their callers poll, and listen again.
            logger.exception("a stream of tasks ended early")


class _Stream:
    """One stream: for whom, for which tasks, and how to send on it."""

    def __init__(self, ctx: AnyContext, request_id: RequestId, owner: Owner, task_ids: list[str]) -> None:
        self.ctx = ctx
        self.request_id = request_id
        self.owner = owner
        self.task_ids = task_ids
        self.meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: request_id}
        self.acknowledged = asyncio.Event()

    async def acknowledge(self, others: SubscriptionFilter) -> None:
        """Say what the stream is for, before anything else: the tasks, and what else was agreed on."""
        agreed = SubscriptionFilter.model_validate({**others.model_dump(by_alias=True), "taskIds": self.task_ids})
        params = SubscriptionsAcknowledgedNotificationParams.model_validate(
            {"notifications": agreed, "_meta": self.meta}
        )
        notification = SubscriptionsAcknowledgedNotification(params=params)
        await self.ctx.session.send_notification(notification, self.request_id)
        self.acknowledged.set()

    async def send(self, params: dict[str, Any]) -> None:
        notification = cast("ServerNotification", TaskNotification(params=params))
        await self.ctx.session.send_notification(notification, self.request_id)


class _AcknowledgingSession:
    """The stream's session for the SDK's handler, whose acknowledgement must name the tasks too."""

    def __init__(self, stream: _Stream) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a session has
        return getattr(self._stream.ctx.session, name)

    async def send_notification(
        self, notification: ServerNotification, related_request_id: RequestId | None = None
    ) -> None:
        if isinstance(notification, SubscriptionsAcknowledgedNotification):
            await self._stream.acknowledge(notification.params.notifications)
        else:
            await self._stream.ctx.session.send_notification(notification, related_request_id)


def _filter_of(ctx: AnyContext) -> Mapping[str, Any]:
    """What a request to listen asks for; nothing if it is another request, or none that makes sense."""
    wanted = (ctx.params or {}).get("notifications") if ctx.method == METHOD else None
    return cast("Mapping[str, Any]", wanted) if isinstance(wanted, Mapping) else {}


def _check_ids(wanted: object) -> list[str]:
    if not isinstance(wanted, list) or not all(isinstance(one, str) for one in cast("list[object]", wanted)):
        raise invalid_params("notifications.taskIds is a list of the ids of tasks")
    if len(cast("list[str]", wanted)) > MOST_TASKS:
        raise invalid_params(f"a stream is for at most {MOST_TASKS:,} tasks: listen to more of them on another")
    return list(dict.fromkeys(cast("list[str]", wanted)))
