"""Steps that wait by means of their task: for an answer, a model, another workflow, or time. They hold no worker."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import cast

from raincheck.core.payload import Json
from raincheck.core.records import InputKind
from raincheck.engine.execution.checkpoints import fingerprint
from raincheck.engine.execution.context import Child, TaskContext
from raincheck.engine.execution.local_api import local_desk
from raincheck.engine.inputs import Reply, read_reply
from raincheck.errors import InvalidValue, ProtocolError, QuotaExceeded, RaincheckError, TaskFailed, TooLarge, ToolError
from raincheck.workflows.actions.base import ActionFailed, Occasion
from raincheck.workflows.expressions.template import Template
from raincheck.workflows.parsing import source
from raincheck.workflows.parsing.models import AskModel, ErrorKind, object_schema


class Ask:
    """A question to the caller's user. Its result is what they said."""

    waits = True

    def __init__(self, model: AskModel) -> None:
        self._message = Template.parse(model.message)
        self._schema = cast("Mapping[str, Json]", object_schema(model.fields))
        self.words = "ask the user"

    async def perform(self, occasion: Occasion) -> Json:
        request: Json = {"message": str(self._message.render(occasion.scope)), "requestedSchema": self._schema}
        try:
            # Not by `elicit`, which takes a turn of its own before it asks: then a timeout could come first.
            answer = await occasion.task.ask(InputKind.ELICITATION, request, name=occasion.name)
        except (ToolError, ProtocolError) as error:
            # The caller can't be asked, or answered with an error.
            raise ActionFailed("declined", str(error)) from error
        reply: Reply[Json] = read_reply(answer, self._schema)
        if not reply.ok:
            raise ActionFailed("declined", f"the user said {reply.action}")
        return reply.content


class Workflow:
    """Another workflow, as a child task. Its result is that one's."""

    waits = True

    def __init__(self, name: str, arguments: Mapping[str, Json]) -> None:
        self._name = name
        self._arguments = Template.parse(arguments)
        self.words = f"run workflow {name}"

    async def perform(self, occasion: Occasion) -> Json:
        arguments = cast("Mapping[str, Json]", self._arguments.render(occasion.scope))
        starting = asyncio.ensure_future(self._start(occasion, arguments))
        try:
            # Shielded, so that a child is known that begins in the very moment in which it is given up.
            return await (await asyncio.shield(starting)).result()
        except asyncio.CancelledError:
            await _let_go(occasion.task, starting)
            raise
        except TooLarge as error:
            raise ActionFailed("too-large", str(error)) from error
        except (TaskFailed, InvalidValue) as error:
            raise ActionFailed("failed", str(error)) from error

    async def _start(self, occasion: Occasion, arguments: Mapping[str, Json]) -> Child:
        """The child. That it was refused is on record, too: later, it might not be, and nobody would wait for it."""
        task, refused = occasion.task, f"{occasion.name} refused"
        record: Mapping[str, Json] = {}
        if not _is_on_record(task, refused):
            try:
                return await task.spawn(self._name, arguments, name=occasion.name)
            except TooLarge as error:
                record = {"kind": "too-large", "message": str(error)}
            except QuotaExceeded as error:
                record = {"kind": "failed", "message": str(error)}
        said = await task.step(refused, partial(_same, record))
        raise ActionFailed(cast("ErrorKind", said["kind"]), str(said["message"]))


class Sleep:
    """Time that passes. It goes on while no process runs."""

    waits = True

    def __init__(self, duration: Json) -> None:
        self._duration = Template.parse(duration)
        self.words = "sleep"

    async def perform(self, occasion: Occasion) -> Json:
        try:
            seconds = source.seconds(cast("str", self._duration.render(occasion.scope)))
        except InvalidValue as error:
            raise ActionFailed("expression", str(error)) from error
        await occasion.task.sleep(seconds, name=occasion.name)
        return None


async def _let_go(task: TaskContext, starting: "asyncio.Future[Child]") -> None:
    """Cancel a child that nobody waits for any more, but not if it is only this attempt that stops."""
    if task.cancelled:
        starting.cancel()
        return
    with suppress(RaincheckError):
        await local_desk(task).cancel_child((await starting).id)


def _is_on_record(task: TaskContext, name: str) -> bool:
    checkpoints = local_desk(task).checkpoints
    return checkpoints.find_step(checkpoints.scoped(name), 0, fingerprint("step", (), {})) is not None


async def _same(record: Mapping[str, Json]) -> Mapping[str, Json]:
    return record
