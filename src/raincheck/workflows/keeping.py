"""What of a file is kept with the tasks of its workflows: enough to go on with them when the file has changed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from raincheck.core.payload import Json, Payload, decode, encode
from raincheck.workflows.source import Source

AROUND = ("raincheck", "allow", "servers")
"""What a file says for all its workflows."""


def kept(source: Source, name: str) -> bytes:
    """One workflow of a file, with what the file says for all."""
    data = cast("Mapping[str, Any]", source.data)
    around = {key: data[key] for key in AROUND if key in data}
    said = {**around, "workflows": {name: data["workflows"][name]}}
    return encode({"file": str(source.file.resolve()), "said": cast("Json", said)}, what=f"workflow {name!r}")


def source_of(definition: bytes) -> Source:
    """What was kept, as if it were a file: in the place of the one that it came from."""
    said = cast("Mapping[str, Any]", decode(Payload(definition)))
    return Source(Path(said["file"]), said["said"], {})
