"""Load workflow files, and restore workflows from stored definitions.

All files are read and checked as a whole, and every error is reported at once.

`file_schema` is the JSON Schema of workflow files for editors; `schema.json` beside this module is its output.
"""

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema

from raincheck.core.json_schema import DIALECT
from raincheck.core.values import Json
from raincheck.workflows.definition import Diagnostic, InvalidWorkflow, KeyPath, WorkflowDefinition, files_in
from raincheck.workflows.machines.from_yaml import build_machine, check_machine
from raincheck.workflows.parsing.errors import diagnostics_of, fix_file, fix_workflow
from raincheck.workflows.parsing.models import ACTION_KINDS, FileModel, MachineModel, PipelineModel
from raincheck.workflows.parsing.source import Source, file_error, read_source
from raincheck.workflows.permissions import Permissions, check_permissions
from raincheck.workflows.pipelines.pipeline import Pipeline, check_pipeline
from raincheck.workflows.validation import check_cycles

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Workflows:
    """The workflows of a file or a folder."""

    file: Path
    definitions: Mapping[str, WorkflowDefinition]

    @property
    def pipelines(self) -> Mapping[str, Pipeline]:
        return {name: workflow for name, workflow in self.definitions.items() if isinstance(workflow, Pipeline)}

    @property
    def machines(self) -> Mapping[str, WorkflowDefinition]:
        return {name: workflow for name, workflow in self.definitions.items() if not isinstance(workflow, Pipeline)}


def load_workflows(path: Path) -> Workflows:
    """Load a file, or all `*.yaml` and `*.yml` files of a folder. Workflow names must be unique across the files.

    Raises:
        InvalidWorkflow: it lists every error, with file and line.
    """
    drafts: list[_Draft] = []
    diagnostics: list[Diagnostic] = []
    for file in _files(path):
        try:
            drafts.append(_draft(read_source(file)))
        except InvalidWorkflow as error:
            diagnostics += error.diagnostics
    diagnostics += [diagnostic for draft in drafts for diagnostic in draft.diagnostics]
    diagnostics += _duplicate_names(drafts)
    inputs = {
        name: draft.models[name].input if name in draft.models else None for draft in drafts for name in draft.names
    }
    definitions: dict[str, WorkflowDefinition] = {}
    for draft in drafts:
        if draft.model is None:
            continue
        permissions = Permissions.from_model(draft.source.file, draft.model, inputs)
        for name, model in draft.models.items():
            try:
                definitions[name] = _definition(draft, name, model, permissions)
            except InvalidWorkflow as error:
                diagnostics += error.diagnostics
    sources = {name: draft.source for draft in drafts for name in draft.models}
    models = {name: model for draft in drafts for name, model in draft.models.items()}
    diagnostics += check_cycles(models, sources)
    if diagnostics:
        raise InvalidWorkflow(diagnostics)
    return Workflows(path, definitions)


def restore_definition(definition: bytes, other_names: Collection[str] = ()) -> WorkflowDefinition:
    """Restore a workflow from its stored definition. `other_names` are the workflows that are served beside it.

    It gets only the permissions that its file still grants.

    Raises:
        InvalidWorkflow: the definition is no longer usable.
    """
    draft = _draft(Source.decode(definition))
    if draft.diagnostics or draft.model is None:
        raise InvalidWorkflow(draft.diagnostics)
    ((name, model),) = draft.models.items()
    permissions = Permissions.from_model(draft.source.file, draft.model, dict.fromkeys([name, *other_names]))
    current = _read_current(draft.source.file)
    if current is not None:
        permissions = permissions.narrow(current)
    return _definition(draft, name, model, permissions)


def _read_current(file: Path) -> FileModel | None:
    """Return what a file currently declares for all its workflows; None if the file no longer exists.

    Raises:
        InvalidWorkflow: the file exists but its permissions are unreadable, so that nothing is allowed.
    """
    if not os.path.lexists(file):
        return None
    if not file.is_file():
        # Reading anything but a regular file might never end.
        raise file_error(file, "it is no longer a regular file: restore the file")
    draft = _Draft(read_source(file))
    _read_file_model(draft)
    if draft.diagnostics:
        raise InvalidWorkflow(draft.diagnostics)
    return draft.model


@dataclass
class _Draft:
    """A file whose workflows are parsed one by one, but not yet checked against each other."""

    source: Source
    model: FileModel | None = None
    omitted: dict[str, list[KeyPath]] = field(default_factory=dict[str, list[KeyPath]])
    """The paths of each workflow that are left out of its model, since they are invalid."""
    names: tuple[str, ...] = ()
    models: dict[str, PipelineModel | MachineModel] = field(default_factory=dict[str, PipelineModel | MachineModel])
    diagnostics: list[Diagnostic] = field(default_factory=list[Diagnostic])


def _files(path: Path) -> list[Path]:
    files = list(files_in(path))
    if not files:
        raise file_error(path, "this folder has no *.yaml or *.yml file: add one")
    return files


def _draft(source: Source) -> _Draft:
    draft = _Draft(source)
    data = _read_file_model(draft)
    if draft.model is not None:
        draft.diagnostics += source.diagnostics(check_permissions(draft.model, source.file.resolve().parent))
    workflows = data.get("workflows")
    for name, data in workflows.items() if isinstance(workflows, Mapping) else ():
        if isinstance(data, Mapping):
            draft.names += (name,)
            if data.keys() >= {"steps", "states"}:
                message = "it has both `steps` (a pipeline) and `states` (a state machine): split it into two workflows"
                draft.diagnostics.append(source.diagnostic(("workflows", name), message))
                continue
            # A pipeline has steps. A state machine has states instead.
            kind = MachineModel if "states" in data else PipelineModel
            model = _validated(kind, data, draft, ("workflows", name), fix_workflow)
            if model is not None:
                draft.models[name] = model
    return draft


def _read_file_model(draft: _Draft) -> Mapping[str, Json]:
    """Parse what a file declares for all its workflows, and return its data."""
    data = draft.source.data
    if not isinstance(data, Mapping):
        message = "a file must be a mapping: start it with `raincheck: 1` and `workflows:`"
        raise InvalidWorkflow([draft.source.diagnostic((), message)])
    draft.model = _validated(FileModel, data, draft, (), fix_file)
    return data


def _validated(
    model: type[M], data: Mapping[str, Any], draft: _Draft, at: KeyPath, fix: Callable[..., dict[str, Any]]
) -> M | None:
    """Parse data. Record a diagnostic for each invalid value, and return the model of the rest if that is valid."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        invalid = dict(diagnostics_of(error, draft.source, at, model))
        draft.diagnostics += invalid.values()
        draft.omitted[str(at[-1]) if at else ""] = list(invalid)
    try:
        return model.model_validate(fix(data, invalid))
    except ValidationError:
        return None


def _definition(
    draft: _Draft, name: str, model: PipelineModel | MachineModel, permissions: Permissions
) -> WorkflowDefinition:
    """Check a workflow, and build it. Consequences of omitted parts are not reported as errors."""
    source, omitted = draft.source, draft.omitted.get(name, ())
    if isinstance(model, MachineModel):
        problems = check_machine(model, permissions, omitted)
    else:
        problems = check_pipeline(model, permissions)
    diagnostics = source.diagnostics(problems, ("workflows", name))
    if diagnostics or omitted:
        raise InvalidWorkflow(diagnostics)
    version, stored = model.version or source.digest(name), source.encode(name)
    if isinstance(model, MachineModel):
        return build_machine(name, model, permissions, version, stored)
    return Pipeline(name, model, permissions, version, stored)


def _duplicate_names(drafts: list[_Draft]) -> Iterator[Diagnostic]:
    sources: dict[str, Source] = {}
    for draft in drafts:
        for name in draft.names:
            first = sources.setdefault(name, draft.source)
            if first is not draft.source:
                message = f"a workflow with this name is in {first.file} too: rename one of them"
                yield draft.source.diagnostic(("workflows", name), message)


def file_schema() -> Json:
    """Return the JSON Schema of workflow files, as far as JSON Schema can express it."""
    kinds = (PipelineModel, MachineModel)
    _, schema = models_json_schema([(model, "validation") for model in (FileModel, *kinds)])
    parts: dict[str, Any] = schema["$defs"]
    whole: dict[str, Any] = parts.pop(FileModel.__name__)
    whole["properties"]["workflows"]["additionalProperties"] = {
        "anyOf": [{"$ref": f"#/$defs/{model.__name__}"} for model in kinds]
    }
    for name in ("ActionModel", "StepModel"):
        parts[name]["oneOf"] = [{"required": [kind]} for kind in ACTION_KINDS]
    return {"$schema": DIALECT, **whole, "$defs": parts}


def schema_text() -> str:
    """Return the schema as text, as in `schema.json`."""
    return json.dumps(file_schema(), indent=2) + "\n"
