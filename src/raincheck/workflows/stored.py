"""What of a file is kept with the tasks of its workflows: enough to go on with them when the file has changed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from raincheck.core.payload import Json, Payload, decode, encode
from raincheck.errors import RaincheckError
from raincheck.workflows.definition import Fault, WorkflowFaults
from raincheck.workflows.parsing.models import AllowModel, FileModel
from raincheck.workflows.parsing.source import Source
from raincheck.workflows.permissions import common_folders, common_hosts

AROUND = ("raincheck", "allow", "servers")
"""What a file says for all its workflows."""


def kept(source: Source, name: str) -> bytes:
    """One workflow of a file, with what the file says for all."""
    data = cast("Mapping[str, Any]", source.data)
    around = {key: data[key] for key in AROUND if key in data}
    said = {**around, "workflows": {name: data["workflows"][name]}}
    return encode({"file": str(source.file.resolve()), "said": cast("Json", said)}, what=f"workflow {name!r}")


def source_of(definition: bytes) -> Source:
    """What was kept, as if it were a file: in the place of the one that it came from.

    Raises:
        WorkflowFaults: it is something else.
    """
    try:
        whole = decode(Payload(definition))
    except RaincheckError as error:
        raise _no_definition(str(error)) from error
    file, said = (whole.get("file"), whole.get("said")) if isinstance(whole, Mapping) else (None, None)
    if not isinstance(file, str) or "\0" in file or not Path(file).is_absolute():
        raise _no_definition("it does not say of which file it is")
    workflows = said.get("workflows") if isinstance(said, Mapping) else None
    if not isinstance(workflows, Mapping) or len(workflows) != 1:
        raise _no_definition("it does not have one workflow")
    return Source(Path(file), said, {})


def _no_definition(why: str) -> WorkflowFaults:
    return WorkflowFaults([Fault("what was kept", 1, "", f"this is no definition of a workflow: {why}")])


def narrowed(then: FileModel, now: FileModel, folder: Path) -> FileModel:
    """What a file allowed when a workflow of it was kept, without what it does not allow any more."""
    allow = AllowModel(
        hosts=sorted(common_hosts(then.allow.hosts, now.allow.hosts)),
        folders=sorted(map(str, common_folders(then.allow.folders, now.allow.folders, folder))),
        env=sorted(set(then.allow.env) & set(now.allow.env)),
    )
    servers = {name: server for name, server in then.servers.items() if now.servers.get(name) == server}
    return then.model_copy(update={"allow": allow, "servers": servers})
