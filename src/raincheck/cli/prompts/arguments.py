"""Arguments of a tool, as they are written in a shell: `year=2026 tags:='["a"]' @more.json`.

What a JSON schema wants: in words for a person, and of a text that one typed.
"""

import difflib
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from raincheck.cli.exit_codes import Unusable
from raincheck.wire.fallback_text import clipped

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


PAIR = re.compile(r"(.+?)(:?=)(.*)", re.DOTALL)

STDIN = "-"


def read_files(words: Sequence[str]) -> list[str | dict[str, Any]]:
    """The words, with what is in the files that they name, and in stdin. It is read before anything is begun.

    Raises:
        Unusable: one of them can't be read.
    """
    return [_read_object(word) if word == STDIN or word.startswith("@") else word for word in words]


def read_arguments(words: Sequence[str | Mapping[str, Any]], schema: Schema) -> dict[str, Any]:
    """What the words mean for a tool, or a form, of this schema. What is said later counts.

    Raises:
        Unusable: one of them can't be understood; it says how to write it.
    """
    read: dict[str, Any] = {}
    named: set[str] = set()
    for word in words:
        if not isinstance(word, str):
            read |= word
            continue
        name, is_json, text = _split(word)
        kind = as_object(as_object(schema.get("properties")).get(name))
        value = _read_json(name, text) if is_json else read_value(text, kind, schema)
        if name in named and isinstance(read[name], list) and isinstance(value, list):
            # An array, item by item: tag=a tag=b.
            value = cast("list[Any]", read[name]) + cast("list[Any]", value)
        elif name in named and "array" not in types_of(kind, schema):
            raise Unusable(f"{name!r} is given twice: give it once")
        named.add(name)
        read[name] = value
    return read


def check_arguments(tool: str, arguments: Mapping[str, Any], schema: Schema, verb: str = "called") -> None:
    """Refuse what does not fit the schema, before anything is sent.

    Raises:
        Unusable: it says which one is wrong, what it should be, and what its author says of it.
    """
    properties = as_object(schema.get("properties"))
    takes_others = schema.get("additionalProperties", False) is not False or "patternProperties" in schema
    may_be_others = takes_others or (not properties and "additionalProperties" not in schema)
    wrong = [] if may_be_others else [_unknown(tool, name, properties) for name in arguments if name not in properties]
    missing = [str(name) for name in cast("list[object]", schema.get("required") or []) if name not in arguments]
    wrong += [f"{name!r} is missing: {explain(name, schema)}" for name in missing]
    if not wrong:
        wrong = [_said(path, message, schema) for path, message in mismatches(arguments, schema)]
    if wrong:
        raise Unusable(f"{tool} can't be {verb} like that: {'; '.join(wrong)}")


def explain(name: str, schema: Schema, *, more: str = "") -> str:
    """What an argument should be, and what its author says of it."""
    kind = as_object(as_object(schema.get("properties")).get(name))
    words = f"{name}=… ({in_words(kind, schema)}{more})"
    said = kind.get("description")
    return f"{words}, {clipped(str(said))}" if said else words


def mismatches(arguments: Mapping[str, Any], schema: Schema) -> list[tuple[list[str], str]]:
    """Where an object does not fit a schema, and what is wrong there."""
    # It takes a tenth of a second to import.
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    try:
        kind = validator_for(schema)
        kind.check_schema(dict(schema))
        # With no registry but an empty one, so that no schema makes us fetch anything.
        errors: list[Any] = list(kind(schema, registry=Registry()).iter_errors(dict(arguments)))
    except (SchemaError, Unresolvable, RecursionError):
        # The schema is at fault, and not what was given: the server will say.
        return []
    return [([str(part) for part in error.absolute_path], clipped(str(error.message))) for error in errors]


def _said(path: list[str], message: str, schema: Schema) -> str:
    return f"{'.'.join(path)!r} is wrong, {message}: {explain(path[0], schema)}" if path else message


def _unknown(tool: str, name: str, properties: Schema) -> str:
    near = difflib.get_close_matches(name, properties, n=1)
    has = ", ".join(map(repr, properties)) or "none"
    hint = f"did you mean {near[0]!r}?" if near else f"it has {has}"
    return f"{name!r} is no argument of {tool}, {hint}"


def _split(word: str) -> tuple[str, bool, str]:
    found = PAIR.fullmatch(word)
    if found is None:
        raise Unusable(
            f"{word!r} is no argument: write name=value, name:=JSON, @file.json for all of them, or - to read them "
            f"from stdin"
        )
    name, sign, text = found.groups()
    return name, sign == ":=", text


def _read_json(name: str, text: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unusable(f"what follows {name}:= is not JSON ({error}): quote it, as in {name}:='[1, 2]'") from error


def _read_object(word: str) -> dict[str, Any]:
    where = "stdin" if word == STDIN else word[1:]
    try:
        text = sys.stdin.read() if word == STDIN else Path(where).read_text(encoding="utf-8")
        read = json.loads(text)
    except OSError as error:
        raise Unusable(f"{where} can't be read ({error.strerror}): write @ and the path of a file") from error
    except (ValueError, RecursionError) as error:
        raise Unusable(f"{where} is not JSON ({error}): it should be an object with the arguments") from error
    if not isinstance(read, dict):
        raise Unusable(f"{where} is not an object with the arguments, but {type(read).__name__}")
    return cast("dict[str, Any]", read)
