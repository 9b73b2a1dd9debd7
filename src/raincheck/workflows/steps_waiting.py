"""Steps that wait by means of their task: for an answer, a model, another workflow, or time. They hold no worker."""

from collections.abc import Mapping
from typing import cast

from raincheck.core.content import InputKind
from raincheck.core.payload import Json
from raincheck.engine.reply import Reply, read_reply
from raincheck.errors import InvalidValue, ProtocolError, TaskFailed, ToolError
from raincheck.workflows import spans
from raincheck.workflows.action import ActionFailed, Occasion
from raincheck.workflows.action_model import AskModel
from raincheck.workflows.common_model import object_schema
from raincheck.workflows.expressions import Template


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
        try:
            return await (await occasion.task.spawn(self._name, arguments)).result()
        except (TaskFailed, InvalidValue) as error:
            raise ActionFailed("failed", str(error)) from error


class Sleep:
    """Time that passes. It goes on while no process runs."""

    waits = True

    def __init__(self, duration: Json) -> None:
        self._duration = Template.parse(duration)
        self.words = "sleep"

    async def perform(self, occasion: Occasion) -> Json:
        try:
            seconds = spans.seconds(cast("str", self._duration.render(occasion.scope)))
        except InvalidValue as error:
            raise ActionFailed("expression", str(error)) from error
        await occasion.task.sleep(seconds)
        return None
