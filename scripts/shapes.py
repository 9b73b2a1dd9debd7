"""Writes the types of what goes over the wire, from the schemas that are pinned with the tests.

`scripts.generate` calls it for every module in `MODULES` that is there. What a module does not name is not looked into:
a reference to it becomes plain JSON.
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
            *("CancelTaskResult", "ListTasksResult", "TaskStatusNotificationParams", "ProgressNotification.params"),
        ),
    },
    "v2026_types": {
        "tasks-2026-07-28": (
            *("Error", "ElicitRequest", "CreateMessageRequest", "ListRootsRequest", "InputRequest", "InputRequests"),
            *("TaskStatus", "TaskFields", "Task", "WorkingTask", "InputRequiredTask", "CompletedTask", "FailedTask"),
            *("CancelledTask", "DetailedTask", "CreateTaskResult", "GetTaskResult", "UpdateTaskResult"),
            *("CancelTaskResult", "TaskStatusNotificationParams", "TaskSubscriptionAcknowledgedNotifications"),
            *("InputResponses", "GetTaskRequest.params", "UpdateTaskRequest.params", "CancelTaskRequest.params"),
            *("TaskSubscriptionNotifications",),
        ),
        "mcp-2026-07-28": ("TextContent", "CallToolResult", "InputRequiredResult"),
    },
}
"""What each module has, by schema: what is sent, then what is received. What refers to another comes after it."""

SHARED = {"TaskFields": "DetailedTask"}
"""Names for what all kinds of a union have in common."""

LINE = 120
PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}

Schema = dict[str, Any]


def write(module: Path) -> str:
    """The module as it should be."""
    sources = MODULES[module.stem]
    writer = _Writer()
    for schema, names in sources.items():
        writer.known = json.loads((ROOT / SCHEMAS / f"{schema}.json").read_text(encoding="utf-8"))["$defs"]
        for name in names:
            writer.define(name)
    head = f'"""Shapes of {" and ".join(sources)}, generated from {SCHEMAS} by `python -m scripts.generate`."""'
    body = "\n".join(writer.lines)
    used = {word: [name for name in names if re.search(rf"\b{name}\b", body)] for word, names in IMPORTS.items()}
    imports = [f"from {word} import {', '.join(names)}" for word, names in used.items() if names]
    return "\n".join([head, "", *imports[:-1], "", imports[-1], *writer.lines, ""])


IMPORTS = {
    "collections.abc": ("Mapping", "Sequence"),
    "typing": ("Literal", "NotRequired", "TypedDict"),
    "raincheck.core.payload": ("Json",),
}


@dataclass(frozen=True)
class _Kind:
    """One kind of object: its fields' schemas, and which of them it must have."""

    fields: Schema
    required: frozenset[str]

    def __or__(self, other: "_Kind") -> "_Kind":
        """Both at once. Where both describe a field, the later does so in more detail."""
        return _Kind(self.fields | other.fields, self.required | other.required)


class _Writer:
    def __init__(self) -> None:
        self.known: Schema = {}
        self.lines: list[str] = []
        self.written: dict[str, dict[str, str]] = {}
        """The fields of every class so far, as they stand in the code."""
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
        """What is meant by a name, or by the name of a field of it; and how to call it."""
        name, _, field = name.partition(".")
        schema = self.known[SHARED.get(name, name)]
        return (self._kinds(schema)[0].fields[field], name + field.title()) if field else (schema, name)

    def _kinds(self, schema: Schema) -> list[_Kind]:
        """What kinds of object it allows; none if it is not about the fields of objects."""
        if "$ref" in schema:
            return self._kinds(self.known[_referred(schema)])
        if "allOf" in schema:
            parts = [found for part in schema["allOf"] if (found := self._kinds(part))]
            return [_merge(choice) for choice in product(*parts)]
        if "anyOf" in schema:
            return [kind for part in schema["anyOf"] for kind in self._kinds(part)]
        if "properties" not in schema:
            return []
        return [_Kind(schema["properties"], frozenset(schema.get("required", ())))]

    def _name_kind(self, name: str, kind: _Kind) -> str:
        """The class for one kind of a union: one that is there already, or a new one that is named for its constant."""
        fields = self._annotate(kind)
        for known, others in self.written.items():
            if others == fields and known not in SHARED:
                return known
        constants = [str(value["const"]) for field, value in kind.fields.items() if _tells_kinds_apart(field, value)]
        own = name + "".join(word.title() for word in constants[0].split("_"))
        self._write_class(own, fields)
        return own

    def _define_shared(self, name: str, kinds: list[_Kind]) -> None:
        first, *others = [self._annotate(kind) for kind in kinds]
        shared = {field: text for field, text in first.items() if all(text == other.get(field) for other in others)}
        self._write_class(name, shared)

    def _annotate(self, kind: _Kind) -> dict[str, str]:
        types = {field: self._type(schema) for field, schema in kind.fields.items()}
        return {field: text if field in kind.required else f"NotRequired[{text}]" for field, text in types.items()}

    def _write_class(self, name: str, fields: dict[str, str]) -> None:
        bases = [one for one, others in self.written.items() if others.items() < fields.items()]
        base = max(bases, key=lambda one: len(self.written[one]), default="TypedDict")
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
            return target if target in self.named else self._type(self.known[target])
        choices = [one["const"] for one in schema.get("anyOf", [schema]) if "const" in one] or schema.get("enum", [])
        if choices:
            return f"Literal[{', '.join(json.dumps(choice) for choice in choices)}]"
        if "anyOf" in schema or isinstance(schema.get("type"), list):
            parts = schema.get("anyOf") or [{"type": one} for one in schema["type"]]
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


def _tells_kinds_apart(field: str, schema: Schema) -> bool:
    return field == "status" and "const" in schema


def _referred(schema: Schema) -> str:
    return schema["$ref"].removeprefix("#/$defs/")
