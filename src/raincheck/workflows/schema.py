"""The JSON Schema of files, for editors: `schema.json` beside this is what it says."""

import json
from typing import Any

from pydantic.json_schema import models_json_schema

from raincheck.core.payload import Json
from raincheck.workflows.action_model import KINDS
from raincheck.workflows.common_model import FileModel
from raincheck.workflows.machine_model import MachineModel
from raincheck.workflows.pipeline_model import PipelineModel

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
