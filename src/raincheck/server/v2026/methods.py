"""Serve the methods of the 2026-07-28 extension: `tasks/get`, `tasks/update`, `tasks/cancel`, and subscriptions.

`subscriptions/listen` with `taskIds` pushes what `tasks/get` would return, whenever that changes. The SDK serves
`subscriptions/listen` and leaves out what it does not know of the filter, so this handler runs before it. Where other
kinds of events are requested too, it lets the SDK's own handler serve them on the same stream, and adds the tasks to
its acknowledgement. It can go when the SDK lets extensions add kinds of events.
"""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types import (
    Notification,
    RequestId,
    ServerNotification,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotification,
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams,
)

from raincheck._async import run_to_completion
from raincheck.core.owner import Owner
from raincheck.core.values import Json
from raincheck.engine.execution.checkpoints import fingerprint
from raincheck.errors import CancelRefused, IllegalTransition, StoreUnavailable, TaskNotFound
from raincheck.server import audit
from raincheck.server.caller import Caller, OwnerResolver, routed_task_id
from raincheck.server.errors import ErrorMapping, invalid_params, missing_capability
from raincheck.server.limits import STREAM_LIMITS, StreamSlots
from raincheck.server.results import TaskRenderer
from raincheck.server.runtime import ServerRuntime
from raincheck.server.sdk_compat import AnyContext
from raincheck.server.wait_policy import WaitPolicy
from raincheck.tracebacks import text_logger
from raincheck.wire import v2026
from raincheck.wire.fields import state_meta

logger = text_logger(__name__)

LISTEN_METHOD = "subscriptions/listen"

MAX_TASKS = 1_000
"""Most tasks of one stream."""

VOLATILE_FIELDS = ("lastUpdatedAt", "pollIntervalMs")
"""Fields whose change alone is not sent."""


class TaskNotification(Notification[dict[str, Any], Literal["notifications/tasks"]]):
    """A task, as `tasks/get` would show it now."""

    method: Literal["notifications/tasks"] = "notifications/tasks"
    params: dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class V2026Methods:
    """Serves the methods for tasks, and streams of their changes, to the owners of the tasks."""

    runtime: ServerRuntime
    owners: OwnerResolver
    wait_policy: WaitPolicy
    renderer: TaskRenderer
    slots: StreamSlots = field(default_factory=lambda: StreamSlots(STREAM_LIMITS))

    async def get(self, caller: Caller, owner: Owner) -> HandlerResult:
        """Return the current task."""
        task_id = routed_task_id(caller)
        with self.wait_policy.track_poll(owner, task_id):
            view = await self.runtime.engine.view(task_id, owner=owner)
        return await self.renderer.render(view, v2026.get_result)

    async def update(self, caller: Caller, owner: Owner) -> HandlerResult:
        """Store answers to open questions. Any answers to questions that are not open are ignored."""
        task_id = routed_task_id(caller)
        answers = (caller.ctx.params or {}).get("inputResponses")
        if not isinstance(answers, Mapping):
            raise invalid_params(f"{caller.ctx.method} needs params.inputResponses, an object of answers by their keys")
        # A task that has ended has no open questions, so all of the answers are ignored.
        with suppress(IllegalTransition):
            await self.runtime.engine.answer(task_id, cast("Mapping[str, Json]", answers), owner=owner)
        return cast("dict[str, Any]", v2026.ack())

    async def cancel(self, caller: Caller, owner: Owner) -> HandlerResult:
        """Cancel the task, unless it has ended: a caller need not know which of the two was first."""
        task_id = routed_task_id(caller)
        try:
            task = await self.runtime.engine.cancel(task_id, owner=owner)
            audit.log_event("cancelled", owner, task_id=task.id, tool=task.tool.name)
        except IllegalTransition:
            pass
        except CancelRefused as refused:
            return cast("dict[str, Any]", v2026.cancel_refused(refused))
        return cast("dict[str, Any]", v2026.ack())

    def serve_subscriptions(self, server: Server[Any]) -> None:
        """Serve subscriptions before the server's own handler does, behind all middleware.

        A server without such a handler gets middleware instead: with a handler, it would claim to serve other streams
        too.
        """
        own_handler = server.get_request_handler(LISTEN_METHOD)
        if own_handler is None:
            server.middleware.append(self.subscribe)
            return

        async def listen(ctx: AnyContext, params: SubscriptionsListenRequestParams) -> HandlerResult:
            return await self.subscribe(ctx, lambda ctx: own_handler.handler(ctx, params))

        server.add_request_handler(LISTEN_METHOD, SubscriptionsListenRequestParams, listen)

    async def subscribe(self, ctx: AnyContext, call_next: CallNext) -> HandlerResult:
        """Serve a stream of task changes. Pass other requests on."""
        wanted = _filter_of(ctx)
        if wanted.get("taskIds") is None:
            return await call_next(ctx)
        caller = Caller.of(ctx)
        if not caller.is_modern or ctx.request_id is None:
            return await call_next(ctx)
        owner = await self.owners.owner_of(ctx)
        with ExitStack() as stack:
            with ErrorMapping(ctx, owner):
                if not caller.takes_tasks:
                    raise missing_capability()
                task_ids = _check_ids(wanted["taskIds"])
                lease = stack.enter_context(self.slots.acquire(owner, len(task_ids)))
                owned_ids = await self._filter_owned(task_ids, owner)
                lease.shrink(len(owned_ids))
            has_other_kinds = any(value for kind, value in wanted.items() if kind != "taskIds")
            return await self._serve(
                _Stream(ctx, ctx.request_id, owner, owned_ids), call_next if has_other_kinds else None
            )

    async def _filter_owned(self, task_ids: list[str], owner: Owner) -> list[str]:
        """Return the ids that belong to this owner. All other ids are left out, without distinction."""
        owned_ids: list[str] = []
        for task_id in task_ids:
            try:
                await self.runtime.engine.task(task_id, owner=owner)
            except TaskNotFound:
                continue
            owned_ids.append(task_id)
        return owned_ids

    async def _serve(self, stream: "_Stream", call_next: CallNext | None) -> HandlerResult:
        """Serve one stream. A stream for tasks alone ends when they have ended; another when its caller disconnects."""
        if call_next is None:
            await stream.acknowledge(SubscriptionFilter())
            await self._push(stream)
            return {"resultType": "complete", "_meta": stream.meta}
        push_task = asyncio.ensure_future(self._push(stream))
        try:
            return await call_next(replace(stream.ctx, session=cast("Any", _AcknowledgingSession(stream))))
        finally:
            push_task.cancel()
            await run_to_completion(asyncio.wait([push_task]))

    async def _push(self, stream: "_Stream") -> None:
        """Send each task now, and again after each visible change, until all have ended."""
        await stream.acknowledged.wait()
        # A fingerprint of the last state is compared, because the state itself may be large.
        sent: dict[str, str] = {}
        try:
            async with aclosing(self.runtime.engine.follow_all(stream.task_ids, owner=stream.owner)) as views:
                async for view in views:
                    params = cast(
                        "dict[str, Any]",
                        v2026.detailed_task(view, poll_ms=self.wait_policy.poll_interval_ms(view.task)),
                    )
                    stable = {name: value for name, value in params.items() if name not in VOLATILE_FIELDS}
                    # An instance may return to an earlier state, which is a change.
                    state_number = None if view.task.state is None else view.task.state.number
                    current = fingerprint("task", stable, state_number)
                    if current != sent.get(view.task.id):
                        sent[view.task.id] = current
                        await self.renderer.record_retrieval(view)
                        await stream.send({**params, "_meta": {**state_meta(view.task), **stream.meta}})
                    if view.task.is_terminal:
                        del sent[view.task.id]
        except StoreUnavailable:
            logger.info("a stream of tasks ended: the engine has stopped")
        except Exception:
            # Streams guarantee nothing: their callers poll, and subscribe again.
            logger.exception("a stream of tasks ended early")


class _Stream:
    """One stream: its owner, its tasks, and the methods that send on it."""

    def __init__(self, ctx: AnyContext, request_id: RequestId, owner: Owner, task_ids: list[str]) -> None:
        self.ctx = ctx
        self.request_id = request_id
        self.owner = owner
        self.task_ids = task_ids
        self.meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: request_id}
        self.acknowledged = asyncio.Event()

    async def acknowledge(self, agreed: SubscriptionFilter) -> None:
        """Acknowledge the stream, before anything else is sent: its tasks, and the other events that were agreed."""
        with_tasks = SubscriptionFilter.model_validate({**agreed.model_dump(by_alias=True), "taskIds": self.task_ids})
        params = SubscriptionsAcknowledgedNotificationParams.model_validate(
            {"notifications": with_tasks, "_meta": self.meta}
        )
        notification = SubscriptionsAcknowledgedNotification(params=params)
        await self.ctx.session.send_notification(notification, self.request_id)
        self.acknowledged.set()

    async def send(self, params: dict[str, Any]) -> None:
        notification = cast("ServerNotification", TaskNotification(params=params))
        await self.ctx.session.send_notification(notification, self.request_id)


class _AcknowledgingSession:
    """The stream's session for the SDK's handler, which adds the tasks to its acknowledgement."""

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
    """Return the filter of a subscription request; empty for another request, or for an invalid filter."""
    wanted = (ctx.params or {}).get("notifications") if ctx.method == LISTEN_METHOD else None
    return cast("Mapping[str, Any]", wanted) if isinstance(wanted, Mapping) else {}


def _check_ids(wanted: object) -> list[str]:
    if not isinstance(wanted, list) or not all(isinstance(task_id, str) for task_id in cast("list[object]", wanted)):
        raise invalid_params("notifications.taskIds is a list of the ids of tasks")
    if len(cast("list[str]", wanted)) > MAX_TASKS:
        raise invalid_params(f"a stream follows at most {MAX_TASKS:,} tasks: open another stream for more")
    return list(dict.fromkeys(cast("list[str]", wanted)))
