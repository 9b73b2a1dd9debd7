"""Parse and check a tool's arguments as typed in a shell: `year=2026 tags:='["a"]' @more.json`.

The types of a JSON schema decide how a typed text is parsed, and are described in words for the user.
"""

import difflib
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from raincheck.cli.exit_codes import UsageError
from raincheck.core.json_schema import InvalidSchema, SchemaValidator, check_schema
from raincheck.wire.fallback_text import clip_text
from raincheck.wire.fields import as_list, as_object

Schema = Mapping[str, Any]

INTEGER = re.compile(r"[+-]?[0-9]+")

MAX_REF_DEPTH = 20
"""The maximum depth of references to follow: some schemas refer to themselves."""

YES, NO = ("true", "yes", "y", "on"), ("false", "no", "n", "off")


def schema_alternatives(schema: Schema, root: Schema, max_depth: int = MAX_REF_DEPTH) -> Iterator[Schema]:
    """Yield the schemas of which a value has to match one, with references resolved."""
    if max_depth == 0:
        return
    if "$ref" in schema:
        yield from schema_alternatives(_target(str(schema["$ref"]), root), root, max_depth - 1)
        return
    parts = [as_object(part) for name in ("anyOf", "oneOf", "allOf") for part in as_list(schema.get(name))]
    for part in parts:
        yield from schema_alternatives(part, root, max_depth - 1)
    if not parts:
        yield schema


def types_of(schema: Schema, root: Schema) -> list[str]:
    """Return the types that a value may have; empty if any type is allowed."""
    return list(dict.fromkeys(kind for option in schema_alternatives(schema, root) for kind in _declared_types(option)))


def _declared_types(schema: Schema) -> list[str]:
    declared = schema.get("type")
    return [str(kind) for kind in as_list(declared)] or ([str(declared)] if declared else [])


def choices_of(schema: Schema, root: Schema) -> list[Any]:
    """Return the allowed values; empty if the schema does not enumerate them."""
    found: list[Any] = []
    for option in schema_alternatives(schema, root):
        found += [option["const"]] if "const" in option else option.get("enum", [])
    return found


def titles_of(schema: Schema, root: Schema) -> list[str]:
    """Return the titles of the choices, one for each."""
    names = cast("list[str]", schema.get("enumNames", []))
    choices = choices_of(schema, root)
    if len(names) == len(choices):
        return [str(name) for name in names]
    titled = {
        json.dumps(option.get("const")): option.get("title")
        for option in schema_alternatives(schema, root)
        if "const" in option
    }
    return [str(titled.get(json.dumps(choice)) or _format_choice(choice)) for choice in choices]


def describe_schema(schema: Schema, root: Schema) -> str:
    """Describe an allowed value, such as `integer`, `one of a, b` or `array of string`."""
    choices = choices_of(schema, root)
    if choices:
        return f"one of {', '.join(map(_format_choice, choices))}"
    types = [_describe_type(option, root) for option in schema_alternatives(schema, root)]
    return " or ".join(dict.fromkeys(name for name in types if name)) or "anything"


def parse_value(text: str, schema: Schema, root: Schema) -> Any:  # noqa: ANN401 - any type that the schema allows
    """Parse a text as a type that the schema allows. A text that fits none stays a string, and is rejected later."""
    choices = choices_of(schema, root)
    for choice in choices:
        if text == _format_choice(choice):
            return choice
    types = types_of(schema, root)
    for kind in ("null", "boolean", "integer", "number", "array", "object"):
        if kind in types:
            try:
                return _as_type(text, kind, schema, root)
            except ValueError:
                continue
    return text if types or choices else _json_or_text(text)


def _as_type(text: str, kind: str, schema: Schema, root: Schema) -> Any:  # noqa: ANN401 - any type that the schema allows
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
            return [parse_value(text, items_of(schema, root), root)]
        case _:
            raise ValueError(text)


def items_of(schema: Schema, root: Schema) -> Schema:
    """Return the schema of an array's items."""
    return next(
        (as_object(option["items"]) for option in schema_alternatives(schema, root) if "items" in option),
        dict[str, Any](),
    )


def _finite(text: str) -> float:
    if INTEGER.fullmatch(text):
        return int(text)
    value = float(text)
    if not math.isfinite(value):
        # JSON has no representation for it.
        raise ValueError(text)
    return value


def _json_or_text(text: str) -> Any:  # noqa: ANN401 - any type that the schema allows
    try:
        return json.loads(text)
    except ValueError:
        return text


def _describe_type(schema: Schema, root: Schema) -> str:
    names: list[str] = []
    for kind in _declared_types(schema):
        if kind == "array" and isinstance(schema.get("items"), Mapping):
            names.append(f"array of {describe_schema(schema['items'], root)}")
        elif kind == "string" and schema.get("format"):
            names.append(f"string ({schema['format']})")
        else:
            names.append(kind)
    return " or ".join(names)


def _target(ref: str, root: Schema) -> Schema:
    found: Schema = root if ref.startswith("#") else {}
    for part in ref.removeprefix("#").split("/"):
        if part:
            found = as_object(found.get(part.replace("~1", "/").replace("~0", "~")))
    return found


def _format_choice(choice: object) -> str:
    return choice if isinstance(choice, str) else json.dumps(choice, ensure_ascii=False)


ARGUMENT_PATTERN = re.compile(r"(.+?)(:?=)(.*)", re.DOTALL)

STDIN = "-"


def read_files(words: Sequence[str]) -> list[str | dict[str, Any]]:
    """Replace `@file` and `-` by the content of the file and of stdin. All are read before the call starts.

    Raises:
        UsageError: one of them can't be read.
    """
    return [_read_object(word) if word == STDIN or word.startswith("@") else word for word in words]


def parse_arguments(words: Sequence[str | Mapping[str, Any]], schema: Schema) -> dict[str, Any]:
    """Parse the words as arguments for a tool, or a form, of this schema. Later words override earlier ones.

    Raises:
        UsageError: a word can't be parsed. The error says how to write it.
    """
    arguments: dict[str, Any] = {}
    named: set[str] = set()
    for word in words:
        if not isinstance(word, str):
            arguments |= word
            continue
        name, is_json, text = _split(word)
        kind = as_object(as_object(schema.get("properties")).get(name))
        value = _read_json(name, text) if is_json else parse_value(text, kind, schema)
        if name in named and isinstance(arguments[name], list) and isinstance(value, list):
            # The items of an array may be given one by one: tag=a tag=b.
            value = cast("list[Any]", arguments[name]) + cast("list[Any]", value)
        elif name in named and "array" not in types_of(kind, schema):
            raise UsageError(f"{name!r} is given twice: give it only once")
        named.add(name)
        arguments[name] = value
    return arguments


def check_arguments(tool: str, arguments: Mapping[str, Any], schema: Schema, verb: str = "called") -> None:
    """Check arguments against the schema before anything is sent.

    Raises:
        UsageError: an argument is wrong. The error names it, the expected type and the schema's description.
    """
    properties = as_object(schema.get("properties"))
    allows_extra = schema.get("additionalProperties", False) is not False or "patternProperties" in schema
    accepts_any = allows_extra or (not properties and "additionalProperties" not in schema)
    errors = (
        [] if accepts_any else [_unknown_argument(name, properties) for name in arguments if name not in properties]
    )
    missing = [str(name) for name in cast("list[object]", schema.get("required") or []) if name not in arguments]
    errors += [f"{name!r} is missing: {describe_argument(name, schema)}" for name in missing]
    if not errors:
        errors = [_invalid_argument(path, message, schema) for path, message in validation_errors(arguments, schema)]
    if errors:
        raise UsageError(f"{tool} can't be {verb} with these values: {'; '.join(errors)}")


def describe_argument(name: str, schema: Schema, *, note: str = "") -> str:
    """Describe an argument's type, with its description from the schema."""
    kind = as_object(as_object(schema.get("properties")).get(name))
    text = f"{name}=… ({describe_schema(kind, schema)}{note})"
    description = kind.get("description")
    return f"{text}, {clip_text(str(description))}" if description else text


def validation_errors(arguments: Mapping[str, Any], schema: Schema) -> list[tuple[list[str], str]]:
    """Return the paths at which an object does not match a schema, each with the error."""
    try:
        check_schema(dict(schema))
        errors = list(SchemaValidator(schema).errors(dict(arguments)))
    except InvalidSchema:
        # The schema is invalid, not the arguments: the server will check them.
        return []
    return [([str(part) for part in error.absolute_path], clip_text(error.message)) for error in errors]


def _invalid_argument(path: list[str], message: str, schema: Schema) -> str:
    return f"{'.'.join(path)!r} is invalid, {message}: {describe_argument(path[0], schema)}" if path else message


def _unknown_argument(name: str, properties: Schema) -> str:
    similar = difflib.get_close_matches(name, properties, n=1)
    names = ", ".join(map(repr, properties)) or "none"
    hint = f"did you mean {similar[0]!r}?" if similar else f"known arguments: {names}"
    return f"unknown argument {name!r}, {hint}"


def _split(word: str) -> tuple[str, bool, str]:
    found = ARGUMENT_PATTERN.fullmatch(word)
    if found is None:
        raise UsageError(
            f"{word!r} is not an argument: write name=value, name:=JSON, @file.json for an object with all of them, "
            f"or - to read it from stdin"
        )
    name, sign, text = found.groups()
    return name, sign == ":=", text


def _read_json(name: str, text: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the value after {name}:= is not JSON ({error}): quote it, as in {name}:='[1, 2]'") from error


def _read_object(word: str) -> dict[str, Any]:
    source = "stdin" if word == STDIN else word[1:]
    try:
        text = sys.stdin.read() if word == STDIN else Path(source).read_text(encoding="utf-8")
        arguments = json.loads(text)
    except OSError as error:
        raise UsageError(f"{source} can't be read ({error.strerror}): write @ and the path of a file") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{source} is not JSON ({error}): it should be an object with the arguments") from error
    if not isinstance(arguments, dict):
        kind = type(arguments).__name__
        raise UsageError(f"{source} is of type {kind}: it should be an object with the arguments")
    return cast("dict[str, Any]", arguments)
