"""Create a new task from a tool call."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from raincheck.clock import Clock, new_task_id
from raincheck.core.change import Creation
from raincheck.core.create import NewTask, create, digest_request
from raincheck.core.limits import Limits
from raincheck.core.owner import Owner
from raincheck.core.payload import Json, Payload, encode
from raincheck.core.policies import clamp_ttl
from raincheck.core.records import TaskId, Tool
from raincheck.engine.tool import TaskTool
from raincheck.stores.base import Store


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """The caller of a tool, its server, and the options of the task."""

    namespace: str
    owner: Owner
    caller: Payload | None = None
    parent_id: TaskId | None = None
    idempotency_key: str | None = None
    ttl: timedelta | None = None
    timeout: timedelta | None = None
    """Timeout for the whole task, unless its tool sets a shorter one."""
    actor: str = "caller"


def create_task(
    tool: TaskTool,
    arguments: Mapping[str, Json],
    request: SubmitRequest,
    *,
    now: datetime,
    limits: Limits,
    task_id: TaskId | None = None,
    validate: bool = True,
) -> Creation:
    """Create the task for a tool call.

    With `validate=False`, the tool's validator is skipped because the arguments are already validated, or can't be
    validated yet.

    Raises:
        InvalidValue: the arguments do not fit the tool, are not JSON or too large, or another value can't be stored.
    """
    tool.check_arguments(arguments)
    if validate:
        tool.validate(arguments)
    key = request.idempotency_key
    tool_timeout = None if tool.timeout is None else timedelta(seconds=tool.timeout)
    timeouts = [timeout for timeout in (tool_timeout, request.timeout) if timeout is not None]
    ttl = clamp_ttl(request.ttl, limits.ttl)
    new = NewTask(
        task_id or new_task_id(now),
        request.namespace,
        request.owner,
        Tool(tool.name, tool.version),
        encode(arguments, what=f"the arguments of {tool.name!r}"),
        caller=request.caller,
        parent_id=request.parent_id,
        idempotency_key=key,
        request_digest=None if key is None else digest_request(tool.name, arguments),
        priority=tool.priority,
        deadline_at=None if not timeouts else now + min(timeouts),
        retry=tool.retry,
        retention=replace(tool.retention, ttl=ttl) if ttl else tool.retention,
        actor=request.actor,
        state=None if tool.state_machine is None else tool.state_machine.initial,
        subject=tool.get_subject(arguments),
    )
    return create(new, now, limits)


@dataclass(frozen=True, slots=True)
class EngineDeps:
    """The dependencies that all attempts of an engine share."""

    store: Store
    clock: Clock
    limits: Limits
