"""`subscriptions/listen` with `taskIds`: pushes what `tasks/get` would answer, whenever that changes.

The SDK serves `subscriptions/listen` and leaves out what it does not know of the filter, so this stands before it.
Where other kinds of events are asked for too, it lets the SDK's own handler serve them on the same stream, and adds the
tasks to what that acknowledges. It can go when the SDK lets extensions add kinds of events.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Literal, cast

import anyio
from mcp.server.context import CallNext, HandlerResult
from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import (
    Notification,
    RequestId,
    ServerNotification,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsAcknowledgedNotificationParams,
)

from raincheck.core.owner import Owner
from raincheck.errors import RaincheckError, TaskNotFound
from raincheck.server.refusals import invalid_params, missing_capability, over_limit, refusing
from raincheck.server.requests import is_modern, knows_tasks
from raincheck.server.running import Running
from raincheck.server.sdk import AnyContext
from raincheck.wire import g2

logger = logging.getLogger(__name__)

METHOD = "subscriptions/listen"

MOST_TASKS = 1_000
"""How many tasks one stream may be for."""

MOST_STREAMS = 1_000
"""How many streams one process serves at once."""

MOST_STREAMS_EACH = 100
"""How many of them one owner may have, so that there is room for others."""

AGAIN_AFTER = 1.0
"""Seconds after which to try again to read a task whose store was away."""

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
        self._streams: Counter[str] = Counter()
        """How many are open, by their owners."""

    async def __call__(self, ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        wanted = _filter_of(ctx)
        if wanted.get("taskIds") is None or not is_modern(ctx) or ctx.request_id is None:
            return await call_next(ctx)
        owner = await self._running.owner_of(ctx)
        with refusing(ctx, owner):
            if not knows_tasks(ctx):
                raise missing_capability()
            self._check_room(owner)
            task_ids = await self._agree_on(_check_ids(wanted["taskIds"]), owner)
        others = {kind: value for kind, value in wanted.items() if kind != "taskIds" and value}
        self._streams[owner.key] += 1
        try:
            return await self._serve(_Stream(ctx, ctx.request_id, owner, task_ids), call_next if others else None)
        finally:
            self._streams -= Counter({owner.key: 1})

    def _check_room(self, owner: Owner) -> None:
        theirs, most = self._streams[owner.key], MOST_STREAMS_EACH if owner.may_list else MOST_STREAMS
        if theirs >= most or self._streams.total() >= MOST_STREAMS:
            raise over_limit("too many streams are open: try again later, or poll", "streams", most, None)

    async def _agree_on(self, task_ids: list[str], owner: Owner) -> list[str]:
        """Those of the ids that are this owner's. The others are left out, whatever they are."""
        agreed: list[str] = []
        for task_id in dict.fromkeys(task_ids):
            try:
                await self._running.engine.view(task_id, owner=owner)
            except TaskNotFound:
                continue
            agreed.append(task_id)
        return agreed

    async def _serve(self, stream: "_Stream", call_next: CallNext | None) -> HandlerResult:
        """Serve one stream. One that is for tasks alone ends when they have ended; another when its caller leaves."""
        session = _AcknowledgingSession(stream)
        result: HandlerResult = {"resultType": "complete", "_meta": stream.meta}
        refusal: Exception | None = None
        async with anyio.create_task_group() as group:
            for task_id in stream.task_ids:
                group.start_soon(self._push, stream, session, task_id)
            try:
                if call_next is None:
                    await session.send_notification(stream.acknowledgement(SubscriptionFilter()), stream.request_id)
                else:
                    result = await call_next(replace(stream.ctx, session=cast("Any", session)))
                    group.cancel_scope.cancel()
            except Exception as error:  # noqa: BLE001 - raised again below, where it does not become one of a group
                refusal = error
                group.cancel_scope.cancel()
        if refusal is not None:
            raise refusal
        return result

    async def _push(self, stream: "_Stream", session: "_AcknowledgingSession", task_id: str) -> None:
        """Send the task as it is, and again after each change that can be seen, until it has ended."""
        await session.acknowledged.wait()
        said: dict[str, Any] | None = None
        while True:
            try:
                async with aclosing(self._running.engine.follow(task_id, owner=stream.owner)) as views:
                    async for view in views:
                        shown = cast(
                            "dict[str, Any]", g2.detailed(view, poll_ms=self._running.pace.interval_ms(view.task))
                        )
                        news = {name: value for name, value in shown.items() if name not in UNSEEN}
                        if news != said:
                            said = news
                            self._running.shown(view)
                            await stream.send({**shown, "_meta": stream.meta})
            except TaskNotFound:
                # It has expired. There is nothing to say of it that could be told from its never having been.
                return
            except RaincheckError:
                logger.warning("task %s can't be followed now; trying again", task_id, exc_info=True)
                await self._running.options.clock.sleep(AGAIN_AFTER)
                continue
            return


class _Stream:
    """One stream: for whom, for which tasks, and how to send on it."""

    def __init__(self, ctx: AnyContext, request_id: RequestId, owner: Owner, task_ids: list[str]) -> None:
        self.ctx = ctx
        self.request_id = request_id
        self.owner = owner
        self.task_ids = task_ids
        self.meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: request_id}

    def acknowledgement(self, others: SubscriptionFilter) -> SubscriptionsAcknowledgedNotification:
        """What the stream is for: the tasks, and what else was agreed on."""
        agreed = SubscriptionFilter.model_validate({**others.model_dump(by_alias=True), "taskIds": self.task_ids})
        params = SubscriptionsAcknowledgedNotificationParams.model_validate(
            {"notifications": agreed, "_meta": self.meta}
        )
        return SubscriptionsAcknowledgedNotification(params=params)

    async def send(self, params: dict[str, Any]) -> None:
        notification = cast("ServerNotification", TaskNotification(params=params))
        await self.ctx.session.send_notification(notification, self.request_id)


class _AcknowledgingSession:
    """The stream's session for the SDK's handler, whose acknowledgement must name the tasks too."""

    def __init__(self, stream: _Stream) -> None:
        self._stream = stream
        self.acknowledged = anyio.Event()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a session has
        return getattr(self._stream.ctx.session, name)

    async def send_notification(
        self, notification: ServerNotification, related_request_id: RequestId | None = None
    ) -> None:
        if isinstance(notification, SubscriptionsAcknowledgedNotification):
            notification = self._stream.acknowledgement(notification.params.notifications)
        await self._stream.ctx.session.send_notification(notification, related_request_id)
        self.acknowledged.set()


def _filter_of(ctx: AnyContext) -> Mapping[str, Any]:
    """What a request to listen asks for; nothing if it is another request, or none that makes sense."""
    wanted = (ctx.params or {}).get("notifications") if ctx.method == METHOD else None
    return cast("Mapping[str, Any]", wanted) if isinstance(wanted, Mapping) else {}


def _check_ids(wanted: object) -> list[str]:
    if not isinstance(wanted, list) or not all(isinstance(one, str) for one in cast("list[object]", wanted)):
        raise invalid_params("notifications.taskIds is a list of the ids of tasks")
    if len(cast("list[str]", wanted)) > MOST_TASKS:
        raise invalid_params(f"a stream is for at most {MOST_TASKS:,} tasks: listen to more of them on another")
    return cast("list[str]", wanted)
