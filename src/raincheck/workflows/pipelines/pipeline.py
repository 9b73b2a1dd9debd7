"""Pipelines: steps, each of which starts when the steps it needs have ended."""

import hashlib
from collections.abc import Mapping
from typing import Any, cast

from raincheck.core.payload import Json, encode
from raincheck.engine.execution.context import TaskContext
from raincheck.engine.tool import TaskTool
from raincheck.workflows.definition import ArgumentValidator, InvalidWorkflow
from raincheck.workflows.expressions.template import Template
from raincheck.workflows.parsing.models import RESTORED, PipelineModel, object_schema
from raincheck.workflows.parsing.source import Source
from raincheck.workflows.permissions import Permissions
from raincheck.workflows.pipelines.run import PipelineRun
from raincheck.workflows.pipelines.step import PipelineStep
from raincheck.workflows.stored import encode_definition
from raincheck.workflows.validation.pipeline import Plan, check_pipeline


class Pipeline:
    """A pipeline that can be run."""

    def __init__(
        self, name: str, model: PipelineModel, permissions: Permissions, version: str, definition: bytes
    ) -> None:
        self.name = name
        self._definition = definition
        self.version = version
        self.description = model.description
        self.model = model
        self.permissions = permissions
        self.plan = Plan.from_model(model)
        self.steps: Mapping[str, PipelineStep] = {
            step.id: PipelineStep(step, permissions, model.max_parallel) for step in model.steps
        }
        self.output = None if model.output is None else Template.parse(model.output)
        self._subject = None if model.subject is None else Template.parse(model.subject)
        self._arguments = ArgumentValidator(name, self.input_schema)

    @property
    def input_schema(self) -> Mapping[str, Json]:
        """The JSON Schema of its arguments."""
        return cast("Mapping[str, Json]", object_schema(self.model.input))

    def predecessors(self, step_id: str) -> frozenset[str]:
        """Return the steps that have ended when this one starts: those it needs, directly or indirectly."""
        return self.plan.predecessors[step_id]

    def tool(self) -> TaskTool:
        """Return the tool that runs its tasks. The arguments of new tasks are validated against its schema."""

        async def body(task: TaskContext, **arguments: Any) -> Json:  # noqa: ANN401 - any input schema
            restored = cast("Mapping[str, Json]", arguments.pop(RESTORED, {}))
            return await PipelineRun(self, task, self._arguments.validate(arguments), restored).run()

        return TaskTool(
            body,
            self.name,
            self.version,
            timeout=self.model.timeout,
            validate=self._arguments.validate,
            get_subject=self._subject_of,
            definition=self._definition,
        )

    def _subject_of(self, arguments: Mapping[str, Json]) -> str | None:
        if self._subject is None:
            return None
        declared = {name: value for name, value in arguments.items() if name != RESTORED}
        return str(self._subject.render({"input": self._arguments.with_defaults(declared)}))


def build_pipeline(model: PipelineModel, name: str, source: Source, permissions: Permissions) -> Pipeline:
    """Build the pipeline of that name from a file.

    Raises:
        InvalidWorkflow: it is invalid; it lists every error.
    """
    diagnostics = check_pipeline(model, name, source, permissions)
    if diagnostics:
        raise InvalidWorkflow(diagnostics)
    data = cast("Any", source.data)["workflows"][name]
    return Pipeline(name, model, permissions, model.version or digest(data), encode_definition(source, name))


def digest(data: Json) -> str:
    """Return a digest that distinguishes the definitions of a workflow."""
    return hashlib.sha256(encode(data)).hexdigest()[:12]
