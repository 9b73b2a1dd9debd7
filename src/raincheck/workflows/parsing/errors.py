"""Translate pydantic's validation errors into diagnostics for the author of a file.

The `fix` functions remove or replace the invalid parts of a file, so that the rest of it can still be checked.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from raincheck.workflows.definition import Diagnostic, KeyPath
from raincheck.workflows.parsing.models import ENV_NAME, FUNCTION, HOST, NAME, FileModel
from raincheck.workflows.parsing.source import Source

_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}


_MISSING = {
    "raincheck": "it is missing: start the file with `raincheck: 1`",
    "steps": "it is missing: a workflow has `steps` (a pipeline) or `states` (a state machine)",
}

_PATTERNS = {
    NAME: "use up to 64 letters, digits, _ and -, and start with a letter",
    ENV_NAME: "use letters, digits and _",
    FUNCTION: "write module:function, such as os:getcwd",
    HOST: "write only the host, as in example.org or example.org:8080",
}

_FORMS = {
    "retry": "{attempts: 3}",
    "ask": "{message: …}",
    "http": "{url: …}",
    "sample": "{prompt: …}",
    "call": "{server: …, tool: …}",
    "timeout": "{after: 5m, take: TRANSITION}",
    "action": "{run: [git, status]}",
}


def diagnostics_of(
    error: ValidationError, source: Source, prefix: KeyPath, model: type[BaseModel]
) -> Iterator[tuple[KeyPath, Diagnostic]]:
    """Yield the diagnostics, each with the path of its value. A value that pydantic tried in several ways has one."""
    details = [(_route(source, prefix, detail), detail) for detail in error.errors(include_url=False)]
    details.sort(key=lambda pair: list(map(str, pair[0])))
    for route, pairs in groupby(details, key=lambda pair: pair[0]):
        yield route[len(prefix) :], source.diagnostic(route, _message([detail for _, detail in pairs], model))


def _route(source: Source, prefix: KeyPath, detail: ErrorDetails) -> KeyPath:
    """Return the path in the file. pydantic's location also names the ways in which it has tried to read a value."""
    route: KeyPath = ()
    value: Any = source.data
    for part in (*prefix, *detail["loc"]):
        is_there = isinstance(value, Mapping) and part in value
        if is_there or (isinstance(value, list) and isinstance(part, int)):
            route, value = (*route, part), cast("Any", value)[part]
    return (*route, str(detail["loc"][-1])) if detail["type"] == "missing" else route


def _message(details: list[ErrorDetails], model: type[BaseModel]) -> str:
    for detail in details:
        if detail["type"] not in _TYPES:
            return _single_message(detail, model)
    types = dict.fromkeys(_TYPES[detail["type"]] for detail in details)
    return f"it must be {' or '.join(types)}, not {_describe_value(details[0]['input'])}{_form(details[0])}"


def _single_message(detail: ErrorDetails, model: type[BaseModel]) -> str:
    context: dict[str, Any] = detail.get("ctx", {})
    match detail["type"]:
        case "missing":
            return _MISSING.get(str(detail["loc"][-1]), "it is missing: add it")
        case "extra_forbidden":
            return "unknown key" + _suggestion(str(detail["loc"][-1]), model)
        case "literal_error":
            return f"it must be {context['expected']}, not {_describe_value(detail['input'])}"
        case "less_than_equal":
            return f"it must be at most {context['le']:,.10g}, not {_describe_value(detail['input'])}"
        case "greater_than_equal":
            return f"it must be at least {context['ge']:,.10g}, not {_describe_value(detail['input'])}"
        case "string_pattern_mismatch":
            remedy = _PATTERNS.get(context["pattern"], f"it must match {context['pattern']}")
            return f"{_describe_value(detail['input'])} is not valid: {remedy}"
        case "too_short":
            return "it is empty: add at least one item"
        case "too_long":
            return f"it has {context['actual_length']} items: at most {context['max_length']} are allowed"
        case _:
            return _shorten_message(detail["msg"])


def _form(detail: ErrorDetails) -> str:
    """Return a hint for a value that must be a mapping."""
    if detail["type"] not in ("model_type", "dict_type"):
        return ""
    location = [str(part) for part in detail["loc"]]
    form = "{to: STATE}" if location[-2:-1] == ["transitions"] else _FORMS.get(location[-1])
    return "" if form is None else f": write {form}"


def _suggestion(name: str, model: type[BaseModel]) -> str:
    if model is FileModel and name in ("steps", "states"):
        return f": it belongs to a workflow, as in `workflows: {{NAME: {{{name}: …}}}}`"
    near = difflib.get_close_matches(name, sorted(_names(model)), n=1, cutoff=0.65)
    return f": did you mean {near[0]}?" if near and near[0] != name else ": remove it, or move it to where it belongs"


def _names(model: type[BaseModel]) -> set[str]:
    """Return all keys that a model and its nested models accept."""
    schema = model.model_json_schema()
    return {name for part in (schema, *schema.get("$defs", {}).values()) for name in part.get("properties", ())}


def _describe_value(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case Mapping():
            return "a mapping"
        case list():
            return "a list"
        case str():
            return repr(value if len(value) <= 60 else f"{value[:60]}…")
        case bool():
            return str(value).lower()
        case _:
            return repr(value)


def _shorten_message(message: str) -> str:
    message = message.removeprefix("Value error, ").removeprefix("Input ")
    return message[:1].lower() + message[1:]


def without_paths(data: Mapping[str, Any], invalid: Iterable[KeyPath]) -> dict[str, Any]:
    """Return a mapping without the values at these paths. The remaining values stay in their order."""
    inner_paths: dict[str, list[KeyPath]] = {}
    for key, *inner in (route for route in invalid if route):
        inner_paths.setdefault(str(key), []).append(tuple(inner))
    result: dict[str, Any] = {}
    for key, value in data.items():
        routes = inner_paths.get(key)
        if routes is None:
            result[key] = value
        elif all(routes) and isinstance(value, Mapping):
            result[key] = without_paths(cast("Mapping[str, Any]", value), routes)
    return result


def fix_file(data: Mapping[str, Any], invalid: Iterable[KeyPath]) -> dict[str, Any]:
    """Return a file without the values at these paths, but with a valid `raincheck: 1`."""
    return {**without_paths(data, invalid), "raincheck": 1}


def fix_workflow(data: Mapping[str, Any], invalid: Iterable[KeyPath]) -> dict[str, Any]:
    """Return a workflow with a harmless stub for each invalid step, and without its other invalid values."""
    invalid = list(invalid)
    invalid_steps = {route[1] for route in invalid if len(route) > 1 and route[0] == "steps"}
    steps = data.get("steps")
    result = without_paths(data, [route for route in invalid if route[:1] != ("steps",)])
    if isinstance(steps, list):
        numbered = enumerate(cast("list[Any]", steps))
        result["steps"] = [_stub(step, index) if index in invalid_steps else step for index, step in numbered]
    return result


def _stub(step: Any, index: int) -> dict[str, Any]:  # noqa: ANN401 - any YAML value
    """Return a step that other steps can need and name."""
    keys = cast("dict[str, Any]", step if isinstance(step, dict) else {})
    stub: dict[str, Any] = {"id": keys["id"] if _is_name(keys.get("id")) else f"unnamed-{index}", "set": None}
    if isinstance(keys.get("needs"), list):
        stub["needs"] = [name for name in keys["needs"] if _is_name(name)]
    return stub


def _is_name(value: object) -> bool:
    return isinstance(value, str) and re.match(NAME, value) is not None
