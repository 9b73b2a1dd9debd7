"""Pipelines: steps, each of which begins when those it needs have ended."""

import hashlib
from collections.abc import Mapping
from typing import Any, cast

from raincheck.core.payload import Json, encode
from raincheck.engine.execution.context import TaskContext
from raincheck.engine.tool import TaskTool
from raincheck.workflows.definition import Arguments, WorkflowFaults
from raincheck.workflows.expressions.template import Template
from raincheck.workflows.parsing.models import RESTORED, PipelineModel, object_schema
from raincheck.workflows.parsing.source import Source
from raincheck.workflows.permissions import Surroundings
from raincheck.workflows.pipelines.run import PipelineRun
from raincheck.workflows.pipelines.step import Step
from raincheck.workflows.stored import kept
from raincheck.workflows.validation.pipeline import Plan, find_faults


class Pipeline:
    """A pipeline that can be run."""

    def __init__(
        self, name: str, model: PipelineModel, surroundings: Surroundings, version: str, definition: bytes
    ) -> None:
        self.name = name
        self._definition = definition
        self.version = version
        self.description = model.description
        self.model = model
        self.surroundings = surroundings
        self.plan = Plan.of(model)
        self.steps: Mapping[str, Step] = {one.id: Step(one, surroundings, model.max_parallel) for one in model.steps}
        self.output = None if model.output is None else Template.parse(model.output)
        self._subject = None if model.subject is None else Template.parse(model.subject)
        self._arguments = Arguments(name, self.input_schema)

    @property
    def input_schema(self) -> Mapping[str, Json]:
        """The JSON Schema of its arguments."""
        return cast("Mapping[str, Json]", object_schema(self.model.input))

    def before(self, step_id: str) -> frozenset[str]:
        """The steps that have ended when this one begins, since it needs them or they are needed for it."""
        return self.plan.before[step_id]

    def tool(self) -> TaskTool:
        """What runs its tasks. Those that begin are checked against its schema."""

        async def body(task: TaskContext, **arguments: Any) -> Json:  # noqa: ANN401 - whatever the input schema takes
            restored = cast("Mapping[str, Json]", arguments.pop(RESTORED, {}))
            return await PipelineRun(self, task, self._arguments.filled(arguments), restored).to_its_end()

        return TaskTool(
            body,
            self.name,
            self.version,
            timeout=self.model.timeout,
            accepts=self._arguments.filled,
            subject_of=self._about,
            definition=self._definition,
        )

    def _about(self, arguments: Mapping[str, Json]) -> str | None:
        given = {name: value for name, value in arguments.items() if name != RESTORED}
        return (
            None
            if self._subject is None
            else str(self._subject.render({"input": self._arguments.with_defaults(given)}))
        )


def pipeline_of(model: PipelineModel, name: str, source: Source, surroundings: Surroundings) -> Pipeline:
    """The pipeline of that name in a file.

    Raises:
        WorkflowFaults: it can't work. Every fault is named.
    """
    faults = find_faults(model, name, source, surroundings)
    if faults:
        raise WorkflowFaults(faults)
    said = cast("Any", source.data)["workflows"][name]
    return Pipeline(name, model, surroundings, model.version or digest(said), kept(source, name))


def digest(said: Json) -> str:
    """What tells one definition from another."""
    return hashlib.sha256(encode(said)).hexdigest()[:12]
