"""Check the references of a step, the values it passes on, and the servers and JSON Schemas that a file declares.

A step refers to commands, functions, servers, hosts, workflows and folders, which must exist and be allowed. It passes
values to a workflow, a function or the user, which must accept them. `templates_in` finds the values of a step that may
contain expressions.
"""

import inspect
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable

from raincheck.errors import InvalidValue
from raincheck.workflows.actions.base import ActionFailed
from raincheck.workflows.actions.http import check_url
from raincheck.workflows.actions.python import find_function
from raincheck.workflows.expressions.names import AllowedNames, check_text
from raincheck.workflows.expressions.sandbox import text_of
from raincheck.workflows.expressions.template import InvalidExpression, TextTemplate, has_expressions
from raincheck.workflows.parsing import source
from raincheck.workflows.parsing.models import (
    ActionModel,
    FileModel,
    HttpModel,
    Properties,
    RunModel,
    ServerModel,
    object_schema,
)
from raincheck.workflows.parsing.source import KeyPath
from raincheck.workflows.permissions import Permissions
from raincheck.workflows.validation.injection import STDIN_INDEX, find_injections


def templates_in(step: ActionModel) -> Iterator[tuple[KeyPath, str]]:
    """Yield every text of a step that is a template, with its path."""
    for route, value in _fields(step):
        yield from texts_in(value, route)


def _fields(step: ActionModel) -> Iterator[tuple[KeyPath, Any]]:
    yield ("run", "argv"), getattr(step.run, "argv", None)
    for name in ("env", "cwd", "stdin"):
        yield ("run", name), getattr(step.run, name, None)
    for name, field in (("url", "url"), ("headers", "headers"), ("json", "body_json"), ("body", "body")):
        yield ("http", name), getattr(step.http, field, None)
    yield ("call", "arguments"), getattr(step.call, "arguments", None)
    yield ("ask", "message"), getattr(step.ask, "message", None)
    for name in ("prompt", "system"):
        yield ("sample", name), getattr(step.sample, name, None)
    for index, message in enumerate(getattr(step.sample, "messages", None) or ()):
        yield ("sample", "messages", index, "text"), message.text
    yield ("with",), step.arguments
    yield ("set",), step.set
    yield ("sleep",), step.sleep


def texts_in(value: Any, route: KeyPath) -> Iterator[tuple[KeyPath, str]]:  # noqa: ANN401 - any YAML value
    """Yield every text in a value, with its path."""
    if isinstance(value, str):
        yield route, value
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            yield from texts_in(item, (*route, key))
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            yield from texts_in(item, (*route, index))


FORM_FIELD_TYPES = frozenset({"string", "number", "integer", "boolean"})
"""The types of a form field with a single value."""


def check_for_workflow(
    name: str, properties: Properties, arguments: Mapping[str, Any]
) -> Iterator[tuple[KeyPath, str]]:
    """Yield the errors of the arguments for a workflow, as far as they are known before expressions are evaluated."""
    schema = object_schema(properties)
    for missing in sorted(set(schema["required"]) - arguments.keys()):
        yield (), f"workflow {name!r} requires {missing!r}: add it"
    for argument, value in arguments.items():
        if argument not in properties:
            accepted = ", ".join(sorted(properties)) or "no arguments"
            yield (argument,), f"workflow {name!r} does not take {argument!r}: it takes {accepted}"
        elif not any(has_expressions(text) for _, text in texts_in(value, ())):
            yield from (((argument,), message) for message in _misfits(schema["properties"][argument], value))


def _misfits(schema: Any, value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    # An invalid schema is reported where it is declared.
    if any(check_properties({"": schema})):
        return
    with suppress(Unresolvable, RecursionError):
        yield from schema_errors(schema, value)


def check_for_function(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """Yield the errors of the argument names for a function."""
    # A function written in C may have no signature.
    with suppress(ValueError):
        signature = inspect.signature(function)
        try:
            signature.bind(**dict.fromkeys(arguments))
        except TypeError as error:
            yield (), f"the function does not accept these arguments: {error}"


def check_form(fields: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """Yield the errors of the fields of a form, which are single values, or several choices from a list."""
    if fields.get("type") == "object" and isinstance(fields.get("properties"), Mapping):
        yield (), "write only the fields, without `type` and `properties`: {ok: {type: boolean}}"
        return
    problems = list(check_properties(fields))
    yield from problems
    for name in fields.keys() - {route[0] for route, _ in problems}:
        if not _is_form_field(fields[name]):
            message = (
                "a form can't have this field: use type string, number, integer or boolean, or an array whose items "
                "are an enum"
            )
            yield (name,), message


def _is_form_field(schema: Mapping[str, Any]) -> bool:
    if schema.get("type") in FORM_FIELD_TYPES:
        return True
    items: Any = schema.get("items")
    is_choice = isinstance(items, Mapping) and not items.keys().isdisjoint({"enum", "anyOf"})
    return schema.get("type") == "array" and is_choice


_WITH: KeyPath = ("with",)


def check_references(step: ActionModel, permissions: Permissions) -> Iterator[tuple[KeyPath, str]]:
    """Yield an error for each reference of a step that does not exist or is not allowed."""
    if step.run is not None:
        yield from _run(step.run, permissions)
    if step.http is not None:
        yield from _http(step.http, permissions)
    if step.python is not None:
        try:
            function = find_function(step.python)
        except InvalidValue as error:
            yield ("python",), str(error)
        else:
            yield from (((*_WITH, *route), message) for route, message in check_for_function(function, step.arguments))
    if step.call is not None and step.call.server not in permissions.servers:
        declared = ", ".join(sorted(permissions.servers)) or "none"
        yield ("call", "server"), f"there is no server {step.call.server!r}: `servers` declares {declared}"
    if step.workflow is not None and step.workflow not in permissions.workflows:
        declared = ", ".join(sorted(permissions.workflows))
        yield ("workflow",), f"there is no workflow {step.workflow!r}: the workflows are {declared}"
    properties = None if step.workflow is None else permissions.workflows.get(step.workflow)
    if step.workflow is not None and properties is not None:
        problems = check_for_workflow(step.workflow, properties, step.arguments)
        yield from (((*_WITH, *route), message) for route, message in problems)
    if step.ask is not None:
        yield from ((("ask", "schema", *route), message) for route, message in check_form(step.ask.fields))
    if step.sleep is not None and not has_expressions(str(step.sleep)):
        try:
            source.parse_duration(step.sleep)
        except InvalidValue as error:
            yield ("sleep",), str(error)


def _run(run: RunModel, permissions: Permissions) -> Iterator[tuple[KeyPath, str]]:
    if run.shell is not None and has_expressions(run.shell):
        yield ("run", "shell"), 'values must not become part of a script: pass them through `env`, and write "$NAME"'
    if run.argv is not None:
        program = text_of(run.argv[0])
        roots = _roots_in(program)
        if roots is not None and roots - {"env"}:
            yield ("run",), "callers must not choose the program: make the first item constant"
        elif not has_expressions(program) and not is_command(program, permissions.folder):
            yield ("run",), explain_missing_command(program, permissions.folder)
        for index, message in find_injections([text_of(item) for item in run.argv], str(run.stdin)):
            yield ("run", "stdin") if index == STDIN_INDEX else ("run", "argv", index), message
    if run.cwd is not None and not has_expressions(run.cwd):
        folder = (permissions.folder / run.cwd).resolve()
        if not permissions.allows_folder(folder):
            yield ("run", "cwd"), f"{run.cwd!r} is not in the file's folder: add it to `allow.folders`"


def is_command(program: str, folder: Path) -> bool:
    """Return whether a command exists."""
    return shutil.which(resolve_program(program, folder)) is not None


def explain_missing_command(program: str, folder: Path) -> str:
    """Return why a command can't be run, and what to do."""
    if "/" not in program:
        return f"there is no command {program!r}: install it, or check PATH"
    if Path(resolve_program(program, folder)).is_file():
        return f"{program!r} is not executable: run chmod +x"
    return f"there is no file {program!r} in {folder}: correct the path"


def resolve_program(program: str, folder: Path) -> str:
    """Return the program to run. A name with a slash is relative to the file's folder, wherever the command runs."""
    return str(folder / program) if "/" in program else program


def _http(http: HttpModel, permissions: Permissions) -> Iterator[tuple[KeyPath, str]]:
    prefix = http.url.split("{{")[0]
    # The host is constant if it ends before the first expression.
    if not has_expressions(http.url) or prefix.count("/") > 2:
        try:
            check_url(prefix, permissions)
        except ActionFailed as error:
            yield ("http", "url"), str(error)


def _roots_in(text: str) -> frozenset[str] | None:
    """Return the first names of a text's expressions; None if it is invalid, which is reported elsewhere."""
    try:
        return frozenset(path[0] for expression in TextTemplate.parse(text).expressions for path in expression.paths)
    except InvalidExpression:
        return None


def check_servers(model: FileModel, folder: Path) -> Iterator[tuple[KeyPath, str]]:
    """Yield the errors of each server, with their paths."""
    nothing = frozenset[str]()
    names = AllowedNames(nothing, nothing, nothing, frozenset(model.allow.env), roots=frozenset({"env"}))
    for name, server in model.servers.items():
        for route, message in _check_server(server, names, folder):
            yield ("servers", name, *route), message


def _check_server(server: ServerModel, names: AllowedNames, folder: Path) -> Iterator[tuple[KeyPath, str]]:
    for header, value in server.headers.items():
        for message in check_text(value, names):
            yield ("headers", header), message
    if server.url is not None and not server.url.startswith(("http://", "https://")):
        yield ("url",), "a URL must start with https:// or http://"
    if server.command is not None and not is_command(server.command[0], folder):
        yield ("command",), explain_missing_command(server.command[0], folder)


def check_properties(properties: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """Yield the errors of JSON Schemas by name, each with its path."""
    for name, schema in object_schema(properties)["properties"].items():
        for route, message in _check_one_schema(schema):
            yield (name, *route), message


def _check_one_schema(schema: Any) -> Iterator[tuple[KeyPath, str]]:  # noqa: ANN401 - any YAML value
    if not isinstance(schema, dict):
        yield (), "a JSON Schema is a mapping, such as {type: string}"
        return
    yield from _check_schema(cast("dict[str, Any]", schema))


def _check_schema(schema: dict[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    try:
        Draft202012Validator.check_schema(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    except SchemaError as error:
        yield tuple(error.absolute_path), f"this is not a valid JSON Schema: {error.message}"
        return
    if "default" not in schema:
        return
    try:
        for message in schema_errors(schema, schema["default"]):
            yield ("default",), f"the default does not match the schema: {message}"
    except Unresolvable as error:
        yield (), f"it has a reference that can't be resolved: {error}"


def schema_errors(schema: Any, value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    """Yield the errors of a value against a schema.

    Raises:
        Unresolvable: the schema has a reference that can't be resolved.
    """
    # The registry is empty, so that no schema can make us fetch a remote reference.
    validator: Any = Draft202012Validator(schema, registry=Registry())
    yield from (error.message for error in validator.iter_errors(value))
