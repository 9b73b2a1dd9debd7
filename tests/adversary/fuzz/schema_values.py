"""Values that fit the pinned schemas of the protocol: messages that no author would write by hand."""

import json
from collections.abc import Mapping
from functools import cache
from random import Random
from typing import Any

from tests.adversary.fuzz.values import TEXTS, fields_of
from tests.support import ROOT

SCHEMAS = {
    "2025-11-25": ("mcp-2025-11-25",),
    "2026-07-28": ("mcp-2026-07-28", "tasks-2026-07-28"),
}
"""The pinned schemas of each version."""

MAX_DEPTH = 6


@cache
def _definitions(schema: str) -> Mapping[str, Any]:
    return json.loads((ROOT / f"tests/wire/schemas/{schema}.json").read_text(encoding="utf-8"))["$defs"]


@cache
def _messages(version: str) -> tuple[tuple[str, str], ...]:
    """Return the schemas and names of all requests and notifications, of clients and of servers."""
    return tuple(
        (schema, name)
        for schema in SCHEMAS[version]
        for name, definition in _definitions(schema).items()
        if name.endswith(("Request", "Notification")) and "method" in json.dumps(definition)
    )


def message(random: Random, version: str) -> dict[str, Any]:
    """Return a request or notification that fits a schema of the version. The envelope is added."""
    schema, name = random.choice(_messages(version))
    defs = _definitions(schema)
    fields = {"jsonrpc": "2.0", "method": "ping", **fields_of(generate(random, defs[name], defs))}
    return fields if name.endswith("Notification") else {"id": 1, **fields}


def generate(random: Random, schema: Any, defs: Mapping[str, Any], depth: int = 0) -> Any:
    """Return a value that fits the schema, about: formats and patterns are not kept."""
    known = fields_of(schema)
    if not known:
        return random.choice(TEXTS)
    if "$ref" in known:
        return generate(random, defs.get(str(known["$ref"]).rpartition("/")[2], {}), defs, depth + 1)
    if "const" in known:
        return known["const"]
    if "enum" in known:
        return random.choice(known["enum"])
    if "allOf" in known:
        parts = [fields_of(generate(random, part, defs, depth)) for part in known["allOf"]]
        return {name: value for part in parts for name, value in part.items()}
    for union in ("anyOf", "oneOf"):
        if union in known:
            return generate(random, random.choice(known[union]), defs, depth + 1)
    return _of_type(random, known, defs, depth)


def _of_type(random: Random, schema: Mapping[str, Any], defs: Mapping[str, Any], depth: int) -> Any:
    kind: str | list[str] = schema.get("type", "object")
    match kind if isinstance(kind, str) else random.choice(kind):
        case "string":
            return random.choice(TEXTS)
        case "integer":
            return random.choice((0, 1, -1, 60_000, 2**53))
        case "number":
            return random.choice((0, 0.5, -1, 100))
        case "boolean":
            return random.random() < 0.5
        case "null":
            return None
        case "array":
            count = random.randrange(3) if depth < MAX_DEPTH else 0
            return [generate(random, schema.get("items", {}), defs, depth + 1) for _ in range(count)]
        case _:
            return _object(random, schema, defs, depth)


def _object(random: Random, schema: Mapping[str, Any], defs: Mapping[str, Any], depth: int) -> dict[str, Any]:
    required = set(schema.get("required", ()))
    wants_optional = depth < MAX_DEPTH
    return {
        name: generate(random, inner, defs, depth + 1)
        for name, inner in schema.get("properties", {}).items()
        if name in required or (wants_optional and random.random() < 0.4)
    }
