"""Files of workflows, read and checked as a whole: whatever is wrong with them is told at once.

The JSON Schema of files, for editors: `schema.json` beside this is what it says.
"""

import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema

from raincheck.core.payload import Json
from raincheck.errors import InvalidValue
from raincheck.workflows.definition import Definition, Fault, WorkflowFaults
from raincheck.workflows.machines.from_yaml import machine_of
from raincheck.workflows.parsing.errors import faults_of, repaired, with_header, without
from raincheck.workflows.parsing.models import KINDS, FileModel, MachineModel, PipelineModel, Properties, WorkflowModel
from raincheck.workflows.parsing.source import Route, Source, read_source
from raincheck.workflows.permissions import Surroundings, host_of
from raincheck.workflows.pipelines.pipeline import Pipeline, pipeline_of
from raincheck.workflows.pipelines.retry import Tried
from raincheck.workflows.stored import narrowed, source_of
from raincheck.workflows.validation.pipeline import cycle_faults
from raincheck.workflows.validation.steps import check_servers

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


DIALECT = "https://json-schema.org/draft/2020-12/schema"


def file_schema() -> Json:
    """What a file may say, as far as JSON Schema can tell."""
    kinds = (PipelineModel, MachineModel)
    _, schema = models_json_schema([(model, "validation") for model in (FileModel, *kinds)])
    parts: dict[str, Any] = schema["$defs"]
    whole: dict[str, Any] = parts.pop(FileModel.__name__)
    whole["properties"]["workflows"]["additionalProperties"] = {
        "anyOf": [{"$ref": f"#/$defs/{model.__name__}"} for model in kinds]
    }
    for name in ("ActionModel", "StepModel"):
        parts[name]["oneOf"] = [{"required": [kind]} for kind in KINDS]
    return {"$schema": DIALECT, **whole, "$defs": parts}


def written() -> str:
    """The schema as the file has it."""
    return json.dumps(file_schema(), indent=2) + "\n"


CHECKPOINT = re.compile(r"(?P<step>[\w-]+)(\[(?P<index>\d+)\])?( round (?P<round>\d+))?( try (?P<try>\d+))?")
"""What checkpoints are called: a step, of `for_each` one of its items, which round, and which try in that."""


@dataclass(slots=True)
class _Recorded:
    """What is known of a step: the last outcome, of each item if there are several."""

    last: dict[int | None, tuple[tuple[int, int], Tried]] = field(
        default_factory=dict[int | None, tuple[tuple[int, int], Tried]]
    )

    def add(self, index: int | None, place: tuple[int, int], outcome: Tried) -> None:
        if index not in self.last or self.last[index][0] < place:
            self.last[index] = place, outcome

    @property
    def results(self) -> list[Json]:
        return [self.last[index][1].result for index in sorted(self.last, key=lambda one: -1 if one is None else one)]

    @property
    def is_ok(self) -> bool:
        return all(outcome.is_ok for _, outcome in self.last.values())


def find_restorable(pipeline: Pipeline, step: str, checkpoints: Mapping[str, Json]) -> dict[str, Json]:
    """The results that a run which begins with a step need not work out anew: of all that does not come after it.

    Of a step with items or rounds nobody can tell by its checkpoints alone whether there were to be more. It is done if
    something has begun that needs it.
    """
    recorded = _recorded(checkpoints)
    found: dict[str, Json] = {}
    for one in pipeline.plan.order:
        comes_later = one == step or step in pipeline.before(one)
        # What came of a step that was undone is gone.
        is_undone = pipeline.plan.undoes.get(one) in recorded
        if comes_later or is_undone or one not in recorded:
            continue
        model = pipeline.steps[one].model
        is_over = (model.for_each is None and model.until is None) or any(
            one in pipeline.before(other) for other in recorded if other in pipeline.plan.order
        )
        if model.for_each is not None and is_over:
            found[one] = recorded[one].results
        elif is_over and recorded[one].is_ok:
            found[one] = recorded[one].results[0]
    return found


def _recorded(checkpoints: Mapping[str, Json]) -> dict[str, _Recorded]:
    found: dict[str, _Recorded] = {}
    for name, value in checkpoints.items():
        parts = CHECKPOINT.fullmatch(name)
        # Others have no name of a step, or are not what a step records.
        if parts is None or not isinstance(value, Mapping) or set(value) not in ({"ok"}, {"error"}):
            continue
        index = None if parts["index"] is None else int(parts["index"])
        place = int(parts["round"] or 1), int(parts["try"] or 1)
        found.setdefault(parts["step"], _Recorded()).add(index, place, Tried.of(cast("Json", value)))
    return found
