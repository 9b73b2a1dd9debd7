"""Actions that wait through the task's context: for an answer, another workflow, or time.

They occupy no worker slot while they wait.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import cast

from raincheck.core.payload import Json
from raincheck.core.records import InputKind
from raincheck.engine.execution.checkpoints import fingerprint
from raincheck.engine.execution.context import Child, TaskContext
from raincheck.engine.execution.local_api import local_task_api
from raincheck.engine.inputs import Reply, parse_reply
from raincheck.errors import InvalidValue, ProtocolError, QuotaExceeded, RaincheckError, TaskFailed, TooLarge, ToolError
from raincheck.workflows.actions.base import ActionCall, ActionFailed
from raincheck.workflows.expressions.template import Template
from raincheck.workflows.parsing import source
from raincheck.workflows.parsing.models import AskModel, ErrorKind, object_schema


class AskAction:
    """Ask the caller's user. The result is the user's answer."""

    waits = True

    def __init__(self, model: AskModel) -> None:
        self._message = Template.parse(model.message)
        self._schema = cast("Mapping[str, Json]", object_schema(model.fields))
        self.label = "ask the user"

    async def perform(self, call: ActionCall) -> Json:
        request: Json = {"message": str(self._message.render(call.scope)), "requestedSchema": self._schema}
        try:
            # Not with `elicit`, which yields to the event loop before it asks, so that a timeout could come first.
            answer = await call.task.ask(InputKind.ELICITATION, request, name=call.name)
        except (ToolError, ProtocolError) as error:
            # The caller can't be asked, or answered with an error.
            raise ActionFailed("declined", str(error)) from error
        reply: Reply[Json] = parse_reply(answer, self._schema)
        if not reply.ok:
            raise ActionFailed("declined", f"the user answered with {reply.action}")
        return reply.content


class WorkflowAction:
    """Run another workflow as a child task. The result is the child's result."""

    waits = True

    def __init__(self, name: str, arguments: Mapping[str, Json]) -> None:
        self._name = name
        self._arguments = Template.parse(arguments)
        self.label = f"run workflow {name}"

    async def perform(self, call: ActionCall) -> Json:
        arguments = cast("Mapping[str, Json]", self._arguments.render(call.scope))
        starting = asyncio.ensure_future(self._start(call, arguments))
        try:
            # Shielded, so that a child that starts during the cancellation is known and can be cancelled.
            return await (await asyncio.shield(starting)).result()
        except asyncio.CancelledError:
            await _cancel_abandoned_child(call.task, starting)
            raise
        except TooLarge as error:
            raise ActionFailed("too-large", str(error)) from error
        except (TaskFailed, InvalidValue) as error:
            raise ActionFailed("failed", str(error)) from error

    async def _start(self, call: ActionCall, arguments: Mapping[str, Json]) -> Child:
        """Start the child. A refusal is recorded too, or a later attempt might start a child that nothing waits for."""
        task, checkpoint_name = call.task, f"{call.name} refused"
        record: Mapping[str, Json] = {}
        if not _is_recorded(task, checkpoint_name):
            try:
                return await task.spawn(self._name, arguments, name=call.name)
            except TooLarge as error:
                record = {"kind": "too-large", "message": str(error)}
            except QuotaExceeded as error:
                record = {"kind": "failed", "message": str(error)}
        recorded = await task.step(checkpoint_name, partial(_return_record, record))
        raise ActionFailed(cast("ErrorKind", recorded["kind"]), str(recorded["message"]))


class SleepAction:
    """Sleep. The time also passes while no process runs."""

    waits = True

    def __init__(self, duration: Json) -> None:
        self._duration = Template.parse(duration)
        self.label = "sleep"

    async def perform(self, call: ActionCall) -> Json:
        try:
            seconds = source.parse_duration(cast("str", self._duration.render(call.scope)))
        except InvalidValue as error:
            raise ActionFailed("expression", str(error)) from error
        await call.task.sleep(seconds, name=call.name)
        return None


async def _cancel_abandoned_child(task: TaskContext, starting: "asyncio.Future[Child]") -> None:
    """Cancel a child that is no longer awaited, unless only this attempt is stopping."""
    if task.cancelled:
        starting.cancel()
        return
    with suppress(RaincheckError):
        await local_task_api(task).cancel_child((await starting).id)


def _is_recorded(task: TaskContext, name: str) -> bool:
    checkpoints = local_task_api(task).checkpoints
    return checkpoints.find_step(checkpoints.scoped(name), 0, fingerprint("step", (), {})) is not None


async def _return_record(record: Mapping[str, Json]) -> Mapping[str, Json]:
    return record
