"""What a JSON schema wants: in words for a person, and of a text that one typed."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

Schema = Mapping[str, Any]

INTEGER = re.compile(r"[+-]?[0-9]+")

MOST_STEPS = 20
"""How far to follow a schema that points elsewhere: some point at themselves."""

YES, NO = ("true", "yes", "y", "on"), ("false", "no", "n", "off")


def options_of(schema: Schema, root: Schema, steps: int = MOST_STEPS) -> Iterator[Schema]:
    """The schemas of which a value has to fit one, without those that only point at others."""
    if steps == 0:
        return
    if "$ref" in schema:
        yield from options_of(_target(str(schema["$ref"]), root), root, steps - 1)
        return
    parts = [*_schemas(schema, "anyOf"), *_schemas(schema, "oneOf"), *_schemas(schema, "allOf")]
    for part in parts:
        yield from options_of(part, root, steps - 1)
    if not parts:
        yield schema


def types_of(schema: Schema, root: Schema) -> list[str]:
    """The types that a value may have; none if any will do."""
    found: list[str] = []
    for option in options_of(schema, root):
        said = option.get("type")
        found += cast("list[str]", said) if isinstance(said, list) else [str(said)] if said else []
    return list(dict.fromkeys(found))


def choices_of(schema: Schema, root: Schema) -> list[Any]:
    """The values of which it has to be one; none if there are no such values."""
    found: list[Any] = []
    for option in options_of(schema, root):
        found += [option["const"]] if "const" in option else option.get("enum", [])
    return found


def titles_of(schema: Schema, root: Schema) -> list[str]:
    """What the choices are called, as many as there are."""
    names = cast("list[str]", schema.get("enumNames", []))
    choices = choices_of(schema, root)
    if len(names) == len(choices):
        return [str(name) for name in names]
    titled = {json.dumps(one.get("const")): one.get("title") for one in options_of(schema, root) if "const" in one}
    return [str(titled.get(json.dumps(choice)) or _shown(choice)) for choice in choices]


def in_words(schema: Schema, root: Schema) -> str:
    """What a value should be, such as `integer`, `one of a, b` or `array of string`."""
    choices = choices_of(schema, root)
    if choices:
        return f"one of {', '.join(map(_shown, choices))}"
    words = [_type_in_words(option, root) for option in options_of(schema, root)]
    return " or ".join(dict.fromkeys(word for word in words if word)) or "anything"


def read_value(text: str, schema: Schema, root: Schema) -> Any:  # noqa: ANN401 - whatever the schema wants
    """What a text means, by what the schema wants. One that can't be that stays a text, and is refused later."""
    choices = choices_of(schema, root)
    for choice in choices:
        if text == _shown(choice):
            return choice
    types = types_of(schema, root)
    for kind in ("null", "boolean", "integer", "number", "array", "object"):
        if kind in types:
            try:
                return _as_type(text, kind, schema, root)
            except ValueError:
                continue
    return text if types or choices else _json_or_text(text)


def _as_type(text: str, kind: str, schema: Schema, root: Schema) -> Any:  # noqa: ANN401 - as above
    match kind:
        case "null" if text == "null":
            return None
        case "boolean" if text.lower() in YES + NO:
            return text.lower() in YES
        case "integer" if INTEGER.fullmatch(text):
            return int(text)
        case "number":
            return _finite(text)
        case "object" | "array" if text.lstrip().startswith("{" if kind == "object" else "["):
            return json.loads(text)
        case "array" if "string" not in types_of(schema, root):
            return [read_value(text, items_of(schema, root), root)]
        case _:
            raise ValueError(text)


def items_of(schema: Schema, root: Schema) -> Schema:
    """What the items of an array have to be."""
    return next((as_object(one["items"]) for one in options_of(schema, root) if "items" in one), dict[str, Any]())


def _finite(text: str) -> float:
    if INTEGER.fullmatch(text):
        return int(text)
    value = float(text)
    if not math.isfinite(value):
        # JSON has no word for it.
        raise ValueError(text)
    return value


def _json_or_text(text: str) -> Any:  # noqa: ANN401 - as above
    try:
        return json.loads(text)
    except ValueError:
        return text


def _type_in_words(schema: Schema, root: Schema) -> str:
    said = schema.get("type")
    words: list[str] = []
    for kind in cast("list[str]", said) if isinstance(said, list) else [said] if said else []:
        if kind == "array" and isinstance(schema.get("items"), Mapping):
            words.append(f"array of {in_words(schema['items'], root)}")
        elif kind == "string" and schema.get("format"):
            words.append(f"string ({schema['format']})")
        else:
            words.append(str(kind))
    return " or ".join(words)


def _schemas(schema: Schema, name: str) -> list[Schema]:
    found = schema.get(name)
    return [as_object(one) for one in cast("list[object]", found)] if isinstance(found, list) else []


def _target(ref: str, root: Schema) -> Schema:
    found: object = root if ref.startswith("#") else {}
    for part in ref.removeprefix("#").split("/"):
        if part:
            found = as_object(found).get(part.replace("~1", "/").replace("~0", "~"), {})
    return as_object(found)


def as_object(value: object) -> Schema:
    """The value, or nothing if it is no object."""
    return cast("Schema", value) if isinstance(value, Mapping) else {}


def _shown(choice: object) -> str:
    return choice if isinstance(choice, str) else json.dumps(choice, ensure_ascii=False)
