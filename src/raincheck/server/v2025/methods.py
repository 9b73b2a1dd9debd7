"""Serve the methods of 2025-11-25: `tasks/get`, `tasks/result`, `tasks/list`, `tasks/cancel`.

A position in a list is encoded as a signed cursor, which a caller can neither forge nor use for another owner.
"""

import base64
import binascii
import hashlib
import hmac
import json
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, cast

from mcp.server.context import HandlerResult
from mcp.shared.exceptions import MCPError

from raincheck.core.owner import Owner
from raincheck.core.records import Task, TaskId, View
from raincheck.errors import IllegalTransition, InvalidValue
from raincheck.server import audit
from raincheck.server.caller import Caller, task_id_of
from raincheck.server.disconnect import run_while_connected
from raincheck.server.errors import invalid_params
from raincheck.server.limits import RESULT_LIMITS, StreamSlots
from raincheck.server.results import TaskRenderer
from raincheck.server.runtime import ServerRuntime
from raincheck.server.v2025.elicitation import ElicitationBroker
from raincheck.server.v2025.notifications import SharedFollower, StatusNotifier
from raincheck.server.wait_policy import WaitPolicy
from raincheck.stores.requests import PageCursor
from raincheck.wire import errors, v2025

PAGE_SIZE = 100
"""Tasks in one page of a list."""

MAX_CURSOR_LENGTH = 1_000
TAG_SIZE = 16


@dataclass(frozen=True, slots=True, eq=False)
class V2025Methods:
    """Serves the methods for tasks to the owners of the tasks."""

    runtime: ServerRuntime
    wait_policy: WaitPolicy
    renderer: TaskRenderer
    follower: SharedFollower
    broker: ElicitationBroker
    notifier: StatusNotifier
    slots: StreamSlots = field(default_factory=lambda: StreamSlots(RESULT_LIMITS))

    async def get(self, caller: Caller, owner: Owner) -> HandlerResult:
        """Return the current task."""
        task_id = task_id_of(caller.ctx)
        with self.wait_policy.track_poll(owner, task_id):
            view = await self.runtime.engine.view(task_id, owner=owner)
        build_result = partial(v2025.get_result, now=self.runtime.clock.now())
        return await self.renderer.render(view, build_result, has_result=False)

    async def result(self, caller: Caller, owner: Owner) -> View:
        """Return the task once it has ended. The answer to the request is what the call itself would have returned.

        A caller that waits receives the input requests of the task.
        """
        view = await self.runtime.engine.view(task_id_of(caller.ctx), owner=owner)
        if not view.task.is_terminal:
            with self.slots.acquire(owner, 1):
                view = await self._wait(caller, view.task)
        return view

    async def list(self, caller: Caller, owner: Owner) -> HandlerResult:
        """Return the caller's tasks, newest first, a page at a time."""
        if not owner.may_list:
            raise MCPError(
                errors.METHOD_NOT_FOUND,
                "tasks/list is not available because this server can't tell its callers apart: use tasks/get",
            )
        engine, key = self.runtime.engine, self.runtime.cursor_key
        cursor = (caller.ctx.params or {}).get("cursor")
        after = None if cursor is None else read_cursor(cursor, owner, engine.namespace, key)
        page = await engine.list_tasks(owner=owner, after=after, limit=PAGE_SIZE)
        now, poll_ms_of = self.runtime.clock.now(), self.wait_policy.poll_interval_ms
        tasks = [v2025.task_fields(task, poll_ms=poll_ms_of(task), now=now) for task in page.tasks]
        next_cursor = None if page.next is None else write_cursor(page.next, owner, engine.namespace, key)
        return cast("dict[str, Any]", v2025.list_result(tasks, next_cursor))

    async def cancel(self, caller: Caller, owner: Owner) -> HandlerResult:
        """Cancel the task, and return its new state."""
        task_id = task_id_of(caller.ctx)
        try:
            task = await self.runtime.engine.cancel(task_id, owner=owner)
        except IllegalTransition as error:
            status = v2025.status_of(await self.runtime.engine.task(task_id, owner=owner))
            raise invalid_params(f"task {task_id!r} can't be cancelled: its status is already {status}") from error
        audit.log_event("cancelled", owner, task_id=task.id, tool=task.tool.name)
        poll_ms = self.wait_policy.poll_interval_ms(task)
        return cast("dict[str, Any]", v2025.task_result(task, poll_ms=poll_ms, now=self.runtime.clock.now()))

    async def _wait(self, caller: Caller, task: Task) -> View:
        async with self.broker.ask_while_waiting(caller, task, names_task=True):
            return await run_while_connected(caller.ctx, self.runtime.clock, self._follow(caller, task))

    async def _follow(self, caller: Caller, task: Task) -> View:
        async with self.notifier.via_request_stream(caller.ctx, task), aclosing(self.follower.follow(task)) as views:
            async for view in views:
                if view.task.is_terminal:
                    return view
        raise AssertionError("the follower stopped before the task ended")

    async def render_result(self, view: View) -> HandlerResult:
        """Return the answer to `tasks/result` for a terminal task, with a reference to the task.

        Raises:
            MCPError: the task ended with this error.
        """
        if view.task.status == "cancelled":
            await self.renderer.record_retrieval(view)
            raise MCPError(*v2025.cancelled_error(view.task))
        return cast("dict[str, Any]", v2025.call_result(view, await self.renderer.render_result(view)))


def write_cursor(position: PageCursor, owner: Owner, namespace: str, key: bytes) -> str:
    """Return a cursor for this position, which only this owner can use."""
    encoded = json.dumps([position.created_at.isoformat(), position.task_id]).encode()
    return base64.urlsafe_b64encode(_sign(encoded, owner, namespace, key) + encoded).decode().rstrip("=")


def read_cursor(cursor: object, owner: Owner, namespace: str, key: bytes) -> PageCursor:
    """Return the position in a list that a caller's cursor encodes.

    Raises:
        InvalidValue: the cursor was not issued to this owner.
    """
    if isinstance(cursor, str) and len(cursor) <= MAX_CURSOR_LENGTH:
        try:
            raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        tag, encoded = raw[:TAG_SIZE], raw[TAG_SIZE:]
        # A position with a valid signature was written by write_cursor, so it can be parsed.
        if encoded and hmac.compare_digest(tag, _sign(encoded, owner, namespace, key)):
            created_at, task_id = json.loads(encoded)
            return PageCursor(datetime.fromisoformat(created_at), TaskId(task_id))
    raise InvalidValue(
        "params.cursor is not a cursor that was issued to you: pass the nextCursor of the previous page unchanged"
    )


def _sign(encoded: bytes, owner: Owner, namespace: str, key: bytes) -> bytes:
    scope = json.dumps([namespace, owner.key]).encode()
    return hmac.new(key, scope + b"\0" + encoded, hashlib.sha256).digest()[:TAG_SIZE]
