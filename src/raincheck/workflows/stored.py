"""The part of a file that is stored with its workflows' tasks, so that they can resume after the file changes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from raincheck.core.payload import Json, Payload, decode, encode
from raincheck.errors import RaincheckError
from raincheck.workflows.definition import Diagnostic, InvalidWorkflow
from raincheck.workflows.parsing.models import AllowModel, FileModel
from raincheck.workflows.parsing.source import Source
from raincheck.workflows.permissions import intersect_folders, intersect_hosts

SHARED_KEYS = ("raincheck", "allow", "servers")
"""The keys of a file that apply to all its workflows."""


def encode_definition(source: Source, name: str) -> bytes:
    """Encode one workflow of a file, with the keys that apply to all workflows."""
    data = cast("Mapping[str, Any]", source.data)
    shared = {key: data[key] for key in SHARED_KEYS if key in data}
    content = {**shared, "workflows": {name: data["workflows"][name]}}
    return encode({"file": str(source.file.resolve()), "said": cast("Json", content)}, what=f"workflow {name!r}")


def decode_definition(definition: bytes) -> Source:
    """Decode a stored definition as a file, at the path of the file that it came from.

    Raises:
        InvalidWorkflow: it is not a stored definition.
    """
    try:
        whole = decode(Payload(definition))
    except RaincheckError as error:
        raise _invalid_definition(str(error)) from error
    file, content = (whole.get("file"), whole.get("said")) if isinstance(whole, Mapping) else (None, None)
    if not isinstance(file, str) or "\0" in file or not Path(file).is_absolute():
        raise _invalid_definition("it does not name its file")
    workflows = content.get("workflows") if isinstance(content, Mapping) else None
    if not isinstance(workflows, Mapping) or len(workflows) != 1:
        raise _invalid_definition("it does not have exactly one workflow")
    return Source(Path(file), content, {})


def _invalid_definition(reason: str) -> InvalidWorkflow:
    message = f"this is not the definition of a workflow: {reason}"
    return InvalidWorkflow([Diagnostic("stored definition", 1, "", message)])


def narrow_permissions(stored: FileModel, current: FileModel, folder: Path) -> FileModel:
    """Return a stored file model without the permissions that its file no longer grants."""
    allow = AllowModel(
        hosts=sorted(intersect_hosts(stored.allow.hosts, current.allow.hosts)),
        folders=sorted(map(str, intersect_folders(stored.allow.folders, current.allow.folders, folder))),
        env=sorted(set(stored.allow.env) & set(current.allow.env)),
    )
    servers = {name: server for name, server in stored.servers.items() if current.servers.get(name) == server}
    return stored.model_copy(update={"allow": allow, "servers": servers})
