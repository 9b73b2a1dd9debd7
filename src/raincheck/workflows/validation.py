"""Checks that all workflows share: of arguments and their JSON Schemas, and of workflows that run each other.

Every error is reported before anything runs. Checks of an action are in `raincheck.workflows.actions`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from raincheck.core.json_schema import DIALECT, InvalidSchema, SchemaValidator, check_schema
from raincheck.workflows.definition import Diagnostic, KeyPath, Problem
from raincheck.workflows.expressions.template import AllowedNames, check_texts
from raincheck.workflows.parsing.models import (
    RESERVED_INPUTS,
    MachineModel,
    PipelineModel,
    WorkflowModel,
    object_schema,
)
from raincheck.workflows.parsing.source import Source


def check_inputs(model: WorkflowModel, names: AllowedNames) -> Iterator[Problem]:
    """Yield the errors of a workflow's input and of its subject."""
    for name in sorted(RESERVED_INPUTS & model.input.keys()):
        yield ("input", name), f"the input name {name!r} is reserved: choose another name"
    for route, message in check_properties(model.input):
        yield ("input", *route), message
    yield from check_texts(model.subject, ("subject",), names.without_roots("env"))


def check_properties(properties: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the errors of JSON Schemas by name, each with its path."""
    for name, schema in object_schema(properties)["properties"].items():
        for route, message in _check_schema(schema):
            yield (name, *route), message


def _check_schema(schema: Any) -> Iterator[Problem]:  # noqa: ANN401 - any YAML value
    if not isinstance(schema, dict):
        yield (), "a JSON Schema is a mapping, such as {type: string}"
        return
    schema = cast("dict[str, Any]", schema)
    try:
        check_schema(schema, dialect=DIALECT)
    except InvalidSchema as error:
        yield error.path, f"this is not a valid JSON Schema: {error}"
        return
    if "default" not in schema:
        return
    try:
        for problem in SchemaValidator(schema).errors(schema["default"]):
            yield ("default",), f"the default does not match the schema: {problem.message}"
    except InvalidSchema as error:
        yield (), f"it has a reference that can't be resolved: {error}"


def check_cycles(models: Mapping[str, WorkflowModel], sources: Mapping[str, Source]) -> Iterator[Diagnostic]:
    """Yield an error for each workflow that would run itself without end, directly or through others."""
    runs = {name: _children(model) for name, model in models.items()}
    for name, children in runs.items():
        cycle = _find_cycle(name, runs)
        if cycle is not None:
            message = f"this workflow runs itself without end: {' -> '.join(cycle)}"
            yield sources[name].diagnostic(("workflows", name, *children[cycle[1]]), message)


def _children(model: WorkflowModel) -> dict[str, KeyPath]:
    """Return the workflows that a workflow runs, each with the path of its first use."""
    found: dict[str, KeyPath] = {}
    for child, route in _runs(model):
        found.setdefault(child, route)
    return found


def _runs(model: WorkflowModel) -> Iterator[tuple[str, KeyPath]]:
    if isinstance(model, PipelineModel):
        for index, step in enumerate(model.steps):
            if step.workflow is not None:
                yield step.workflow, ("steps", index, "workflow")
    if isinstance(model, MachineModel):
        for name, state in model.states.items():
            if state.action is not None and state.action.workflow is not None:
                yield state.action.workflow, ("states", name, "action", "workflow")


def _find_cycle(start: str, runs: Mapping[str, Mapping[str, KeyPath]]) -> tuple[str, ...] | None:
    paths: list[tuple[str, ...]] = [(start,)]
    seen: set[str] = set()
    while paths:
        path = paths.pop(0)
        for child in runs.get(path[-1], {}):
            if child == start:
                return (*path, child)
            if child not in seen:
                seen.add(child)
                paths.append((*path, child))
    return None
