"""Generate the types of wire messages from the schemas that are pinned with the tests.

`scripts.generate` calls it for every existing module of `MODULES`. A reference to a type that a module does not list
becomes plain JSON.
"""

import json
import re
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SCHEMAS = "tests/wire/schemas"

MODULES: dict[str, dict[str, tuple[str, ...]]] = {
    "v2025_types": {
        "mcp-2025-11-25": (
            *("RelatedTaskMetadata", "TaskStatus", "Task", "CreateTaskResult", "GetTaskResult"),
            *("ListTasksResult", "ProgressNotification.params"),
        ),
    },
    "v2026_types": {
        "tasks-2026-07-28": (
            *("Error", "TaskFields", "Task", "WorkingTask", "InputRequiredTask", "CompletedTask", "FailedTask"),
            *("CancelledTask", "DetailedTask", "CreateTaskResult", "UpdateTaskResult", "CancelTaskResult"),
        ),
        "mcp-2026-07-28": ("InputRequiredResult",),
    },
}
"""The types of each module that sent messages have, by schema. A type follows those that it refers to."""

SHARED = {"TaskFields": "DetailedTask"}
"""Names of types with the fields that all members of a union have in common."""

LINE = 120
PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}

Schema = dict[str, Any]


def write(module: Path) -> str:
    """Return the text of the generated module."""
    sources = MODULES[module.stem]
    writer = _Writer()
    for schema, names in sources.items():
        writer.definitions = json.loads((ROOT / SCHEMAS / f"{schema}.json").read_text(encoding="utf-8"))["$defs"]
        for name in names:
            writer.define(name)
    head = f'"""Shapes of {" and ".join(sources)}, generated from {SCHEMAS} by `python -m scripts.generate`."""'
    body = "\n".join(writer.lines)
    imported = {
        source: [name for name in names if re.search(rf"\b{name}\b", body)] for source, names in IMPORTS.items()
    }
    imports = [f"from {source} import {', '.join(names)}" for source, names in imported.items() if names]
    return "\n".join([head, "", *imports[:-1], "", imports[-1], *writer.lines, ""])


IMPORTS = {
    "collections.abc": ("Mapping", "Sequence"),
    "typing": ("Literal", "NotRequired", "TypedDict"),
    "raincheck.core.values": ("Json",),
}


@dataclass(frozen=True)
class _Kind:
    """One kind of object: the schemas of its fields, and which fields are required."""

    fields: Schema
    required: frozenset[str]

    def __or__(self, other: "_Kind") -> "_Kind":
        """Return an object that is of both kinds. If both describe a field, the later description is more detailed."""
        return _Kind(self.fields | other.fields, self.required | other.required)


class _Writer:
    def __init__(self) -> None:
        self.definitions: Schema = {}
        self.lines: list[str] = []
        self.written: dict[str, dict[str, str]] = {}
        """The fields of every class written so far, as code."""
        self.named: set[str] = set()

    def define(self, name: str) -> None:
        schema, name = self._find(name)
        kinds = self._kinds(schema)
        if name in SHARED:
            self._define_shared(name, kinds)
        elif len(kinds) == 1:
            self._write_class(name, self._annotate(kinds[0]))
        elif kinds:
            self._define_alias(name, [self._name_kind(name, kind) for kind in kinds])
        else:
            self._define_alias(name, [self._type(schema)])
        self.named.add(name)

    def _find(self, name: str) -> tuple[Schema, str]:
        """Return the schema of a type or of one of its fields (`Type.field`), and the name of its class."""
        name, _, field = name.partition(".")
        schema = self.definitions[SHARED.get(name, name)]
        return (self._kinds(schema)[0].fields[field], name + field.title()) if field else (schema, name)

    def _kinds(self, schema: Schema) -> list[_Kind]:
        """Return the kinds of object that a schema allows; none if it does not describe fields of objects."""
        if "$ref" in schema:
            return self._kinds(self.definitions[_referred(schema)])
        if "allOf" in schema:
            parts = [found for part in schema["allOf"] if (found := self._kinds(part))]
            return [_merge(choice) for choice in product(*parts)]
        if "anyOf" in schema:
            return [kind for part in schema["anyOf"] for kind in self._kinds(part)]
        if "properties" not in schema:
            return []
        return [_Kind(schema["properties"], frozenset(schema.get("required", ())))]

    def _name_kind(self, name: str, kind: _Kind) -> str:
        """Return the class of one kind of a union: an existing class, or a new one named after the kind's constant."""
        fields = self._annotate(kind)
        for existing, existing_fields in self.written.items():
            if existing_fields == fields and existing not in SHARED:
                return existing
        constants = [str(value["const"]) for field, value in kind.fields.items() if _distinguishes_kinds(field, value)]
        own = name + "".join(part.title() for part in constants[0].split("_"))
        self._write_class(own, fields)
        return own

    def _define_shared(self, name: str, kinds: list[_Kind]) -> None:
        first, *other_kinds = [self._annotate(kind) for kind in kinds]
        shared = {
            field: text
            for field, text in first.items()
            if all(text == kind_fields.get(field) for kind_fields in other_kinds)
        }
        self._write_class(name, shared)

    def _annotate(self, kind: _Kind) -> dict[str, str]:
        types = {field: self._type(schema) for field, schema in kind.fields.items()}
        return {field: text if field in kind.required else f"NotRequired[{text}]" for field, text in types.items()}

    def _write_class(self, name: str, fields: dict[str, str]) -> None:
        bases = [
            existing for existing, existing_fields in self.written.items() if existing_fields.items() < fields.items()
        ]
        base = max(bases, key=lambda existing: len(self.written[existing]), default="TypedDict")
        own = [f"    {field}: {text}" for field, text in fields.items() if field not in self.written.get(base, ())]
        self.lines += ["", "", f"class {name}({base}):", *own]
        self.written[name] = fields

    def _define_alias(self, name: str, types: list[str]) -> None:
        line = f"{name} = {' | '.join(types)}"
        if len(line) > LINE:
            line = f"{name} = (\n    " + "\n    | ".join(types) + "\n)"
        is_after_alias = self.lines and not self.lines[-1].startswith(" ")
        self.lines += [line] if is_after_alias else ["", "", line]

    def _type(self, schema: Schema) -> str:
        if "$ref" in schema:
            target = _referred(schema)
            return target if target in self.named else self._type(self.definitions[target])
        choices = [choice["const"] for choice in schema.get("anyOf", [schema]) if "const" in choice] or schema.get(
            "enum", []
        )
        if choices:
            return f"Literal[{', '.join(json.dumps(choice) for choice in choices)}]"
        if "anyOf" in schema or isinstance(schema.get("type"), list):
            parts = schema.get("anyOf") or [{"type": choice} for choice in schema["type"]]
            return " | ".join(dict.fromkeys(self._type(part) for part in parts))
        match schema.get("type"):
            case None:
                return "Json"
            case "array":
                return f"Sequence[{self._type(schema['items'])}]"
            case "object":
                return f"Mapping[str, {self._type(schema.get('additionalProperties', {}))}]"
            case plain:
                return PLAIN[plain]


def _merge(kinds: tuple[_Kind, ...]) -> _Kind:
    whole = kinds[0]
    for kind in kinds[1:]:
        whole |= kind
    return whole


def _distinguishes_kinds(field: str, schema: Schema) -> bool:
    return field == "status" and "const" in schema


def _referred(schema: Schema) -> str:
    return schema["$ref"].removeprefix("#/$defs/")
