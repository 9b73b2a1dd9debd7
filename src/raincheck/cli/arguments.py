"""Arguments of a tool, as they are written in a shell: `year=2026 tags:='["a"]' @more.json`."""

import difflib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from raincheck.cli.endings import Unusable
from raincheck.cli.schemas import Schema, as_object, in_words, read_value, types_of
from raincheck.wire.spoken import clipped

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
