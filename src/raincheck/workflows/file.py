"""Files of workflows, read and checked as a whole: whatever is wrong with them is told at once."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from raincheck.errors import InvalidValue
from raincheck.workflows.common_model import FileModel, Properties, WorkflowModel
from raincheck.workflows.definition import Definition
from raincheck.workflows.faults import Fault, WorkflowFaults
from raincheck.workflows.keeping import narrowed, source_of
from raincheck.workflows.machine_file import machine_of
from raincheck.workflows.machine_model import MachineModel
from raincheck.workflows.model_faults import faults_of
from raincheck.workflows.pipeline import Pipeline, pipeline_of
from raincheck.workflows.pipeline_family import cycle_faults
from raincheck.workflows.pipeline_model import PipelineModel
from raincheck.workflows.repair import repaired, with_header, without
from raincheck.workflows.server_checks import check_servers
from raincheck.workflows.source import Source, read_source
from raincheck.workflows.surroundings import Surroundings, host_of
from raincheck.workflows.yaml_values import Route

M = TypeVar("M", bound=BaseModel)

SUFFIXES = frozenset({".yaml", ".yml"})
NO_MAPPING = "a file is a mapping: begin with `raincheck: 1` and `workflows:`"


@dataclass(frozen=True)
class Workflows:
    """The workflows of a file or a folder."""

    file: Path
    definitions: Mapping[str, Definition]

    @property
    def pipelines(self) -> Mapping[str, Pipeline]:
        return {name: one for name, one in self.definitions.items() if isinstance(one, Pipeline)}

    @property
    def machines(self) -> Mapping[str, Definition]:
        return {name: one for name, one in self.definitions.items() if not isinstance(one, Pipeline)}


def load_workflows(path: Path) -> Workflows:
    """Read a file, or all `*.yaml` and `*.yml` of a folder, whose names then must differ.

    Raises:
        WorkflowFaults: it names every fault, with file and line.
    """
    drafts: list[_Draft] = []
    faults: list[Fault] = []
    for file in _files(path):
        try:
            drafts.append(_draft(read_source(file)))
        except WorkflowFaults as error:
            faults += error.faults
    faults += [fault for draft in drafts for fault in draft.faults]
    faults += _same_names(drafts)
    known = {name: draft.takes(name) for draft in drafts for name in draft.named}
    definitions: dict[str, Definition] = {}
    for draft in drafts:
        for name, model in draft.models.items() if draft.model is not None else ():
            try:
                definitions[name] = _definition(draft, name, model, known)
            except WorkflowFaults as error:
                faults += error.faults
    sources = {name: draft.source for draft in drafts for name in draft.models}
    models = {name: model for draft in drafts for name, model in draft.models.items()}
    faults += cycle_faults(models, sources)
    if faults:
        raise WorkflowFaults(faults)
    return Workflows(path, definitions)


def rebuilt(definition: bytes, others: Collection[str] = ()) -> Definition:
    """The workflow of which this was kept, among others of these names. It is allowed what its file still allows.

    Raises:
        WorkflowFaults: it can't be used any more.
    """
    draft = _draft(source_of(definition))
    if draft.faults or draft.model is None:
        raise WorkflowFaults(draft.faults)
    now = _said_now(draft.source.file)
    if now is not None:
        draft.model = narrowed(draft.model, now, draft.source.file.resolve().parent)
    ((name, model),) = draft.models.items()
    return _definition(draft, name, model, dict.fromkeys([name, *others]))


def _said_now(file: Path) -> FileModel | None:
    """What a file says now for all its workflows; None if it is gone.

    Raises:
        WorkflowFaults: it is there and nobody can tell what it allows, so that nothing is allowed.
    """
    if not os.path.lexists(file):
        return None
    if not file.is_file():
        # Reading what is no file might never end.
        raise WorkflowFaults([Fault(str(file), 1, "", "it is not a file any more")])
    draft = _Draft(read_source(file))
    if not isinstance(draft.source.data, Mapping):
        raise WorkflowFaults([draft.source.fault((), NO_MAPPING)])
    model = _validated(FileModel, draft.source.data, draft, (), without)
    if draft.faults:
        raise WorkflowFaults(draft.faults)
    return model


@dataclass
class _Draft:
    """A file whose workflows are known one by one, but not yet checked with each other."""

    source: Source
    model: FileModel | None = None
    left_out: dict[str, list[Route]] = field(default_factory=dict[str, list[Route]])
    """What of each workflow is not in its model, since it was wrong."""
    named: tuple[str, ...] = ()
    models: dict[str, WorkflowModel] = field(default_factory=dict[str, WorkflowModel])
    faults: list[Fault] = field(default_factory=list[Fault])

    def takes(self, name: str) -> Properties | None:
        """What a workflow takes; None if nobody can tell."""
        return self.models[name].input if name in self.models else None


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
    if not files:
        raise WorkflowFaults([Fault(str(path), 1, "", "there is no *.yaml or *.yml in this folder")])
    return files


def _draft(source: Source) -> _Draft:
    draft = _Draft(source)
    if not isinstance(source.data, Mapping):
        raise WorkflowFaults([source.fault((), NO_MAPPING)])
    draft.model = _validated(FileModel, source.data, draft, (), with_header)
    if draft.model is not None:
        wrong = check_servers(draft.model, source.file.resolve().parent)
        draft.faults += [source.fault(route, message) for route, message in chain(wrong, _check_hosts(draft.model))]
    said = source.data.get("workflows")
    for name, data in said.items() if isinstance(said, Mapping) else ():
        if isinstance(data, Mapping):
            draft.named += (name,)
            if data.keys() >= {"steps", "states"}:
                message = "it has steps, as a pipeline, and states, as a state machine: make two workflows of it"
                draft.faults.append(source.fault(("workflows", name), message))
                continue
            model = _validated(_model_for(data), data, draft, ("workflows", name), repaired)
            if model is not None:
                draft.models[name] = model
    return draft


def _check_hosts(model: FileModel) -> Iterator[tuple[Route, str]]:
    for place, host in enumerate(model.allow.hosts):
        try:
            host_of(host)
        except InvalidValue as error:
            yield ("allow", "hosts", place), str(error)


def _model_for(data: Mapping[str, Any]) -> type[WorkflowModel]:
    """A pipeline has steps. What has states instead is a state machine."""
    return MachineModel if "states" in data else PipelineModel


def _validated(
    model: type[M], data: Mapping[str, Any], draft: _Draft, at: Route, mend: Callable[..., dict[str, Any]]
) -> M | None:
    """What the data says. Where some of it is wrong that is noted, and the rest is taken if it makes sense."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        wrong = dict(faults_of(error, draft.source, at, model))
        draft.faults += wrong.values()
        draft.left_out[str(at[-1]) if at else ""] = list(wrong)
    try:
        return model.model_validate(mend(data, wrong))
    except ValidationError:
        return None


def _definition(draft: _Draft, name: str, model: WorkflowModel, known: Mapping[str, Properties | None]) -> Definition:
    assert draft.model is not None  # noqa: S101 - without it no workflow is looked at
    surroundings = Surroundings.of(draft.source.file, draft.model, known)
    if isinstance(model, MachineModel):
        return machine_of(model, name, draft.source, surroundings, draft.left_out.get(name, ()))
    assert isinstance(model, PipelineModel)  # noqa: S101 - the other kind
    return pipeline_of(model, name, draft.source, surroundings)


def _same_names(drafts: list[_Draft]) -> Iterator[Fault]:
    seen: dict[str, Source] = {}
    for draft in drafts:
        for name in draft.named:
            other = seen.setdefault(name, draft.source)
            if other is not draft.source:
                message = f"a workflow of this name is in {other.file} too: give one of them another name"
                yield draft.source.fault(("workflows", name), message)
