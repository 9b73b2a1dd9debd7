"""Whether what a step reaches for is there: commands, functions, servers, hosts, workflows, folders.

Whether what a step hands on can be taken: by a workflow, by a function, by whoever is asked.

Where a step has values that may hold expressions.

What is wrong with the servers that a file names.
"""

import inspect
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from referencing.exceptions import Unresolvable

from raincheck.errors import InvalidValue
from raincheck.workflows.actions.base import ActionFailed
from raincheck.workflows.actions.http import check_url
from raincheck.workflows.actions.python import find_function
from raincheck.workflows.expressions.names import Names, check_text
from raincheck.workflows.expressions.sandbox import text_of
from raincheck.workflows.expressions.template import InvalidExpression, Text, is_open
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
from raincheck.workflows.parsing.source import Route
from raincheck.workflows.permissions import Surroundings
from raincheck.workflows.validation.injection import INPUT, find_pasted
from raincheck.workflows.validation.inputs import check_properties, misfits


def values_of(step: ActionModel) -> Iterator[tuple[Route, str]]:
    """Every text that is a template, with the way to it."""
    for route, value in _fields(step):
        yield from texts_in(value, route)


def _fields(step: ActionModel) -> Iterator[tuple[Route, Any]]:
    yield ("run", "argv"), getattr(step.run, "argv", None)
    for name in ("env", "cwd", "stdin"):
        yield ("run", name), getattr(step.run, name, None)
    for name, field in (("url", "url"), ("headers", "headers"), ("json", "body_json"), ("body", "body")):
        yield ("http", name), getattr(step.http, field, None)
    yield ("call", "arguments"), getattr(step.call, "arguments", None)
    yield ("ask", "message"), getattr(step.ask, "message", None)
    for name in ("prompt", "system"):
        yield ("sample", name), getattr(step.sample, name, None)
    for place, message in enumerate(getattr(step.sample, "messages", None) or ()):
        yield ("sample", "messages", place, "text"), message.text
    yield ("with",), step.arguments
    yield ("set",), step.set
    yield ("sleep",), step.sleep


def texts_in(value: Any, route: Route) -> Iterator[tuple[Route, str]]:  # noqa: ANN401 - whatever the file says
    """Every text in a value, with the way to it."""
    if isinstance(value, str):
        yield route, value
    elif isinstance(value, Mapping):
        for key, one in cast("Mapping[str, Any]", value).items():
            yield from texts_in(one, (*route, key))
    elif isinstance(value, list):
        for place, one in enumerate(cast("list[Any]", value)):
            yield from texts_in(one, (*route, place))


PLAIN = frozenset({"string", "number", "integer", "boolean"})
"""What a single field of a form can hold."""


def check_for_workflow(name: str, takes: Properties, given: Mapping[str, Any]) -> Iterator[tuple[Route, str]]:
    """What is wrong with the arguments for a workflow, as far as it is known before they are worked out."""
    schema = object_schema(takes)
    for missing in sorted(set(schema["required"]) - given.keys()):
        yield (), f"workflow {name!r} needs {missing!r} too"
    for argument, value in given.items():
        if argument not in takes:
            known = ", ".join(sorted(takes)) or "nothing"
            yield (argument,), f"workflow {name!r} does not take {argument!r}: it takes {known}"
        elif not any(is_open(text) for _, text in texts_in(value, ())):
            yield from (((argument,), message) for message in _misfits(schema["properties"][argument], value))


def _misfits(schema: Any, value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    # A schema that is none is told of where it stands.
    if any(check_properties({"": schema})):
        return
    with suppress(Unresolvable, RecursionError):
        yield from misfits(schema, value)


def check_for_function(function: Callable[..., Any], given: Mapping[str, Any]) -> Iterator[tuple[Route, str]]:
    """What is wrong with the names of the arguments for a function."""
    # What is written in C may have no signature.
    with suppress(ValueError):
        signature = inspect.signature(function)
        try:
            signature.bind(**dict.fromkeys(given))
        except TypeError as error:
            yield (), f"it can't be called like that: {error}"


def check_question(fields: Mapping[str, Any]) -> Iterator[tuple[Route, str]]:
    """What is wrong with the fields of a form, which are single values, or some out of a list."""
    if fields.get("type") == "object" and isinstance(fields.get("properties"), Mapping):
        yield (), "name the fields alone, without `type` and `properties`: {ok: {type: boolean}}"
        return
    wrong = list(check_properties(fields))
    yield from wrong
    for name in fields.keys() - {route[0] for route, _ in wrong}:
        if not _is_plain(fields[name]):
            message = (
                "nobody can be asked for this: a field is of type string, number, integer or boolean, or an array "
                "whose items are an enum"
            )
            yield (name,), message


def _is_plain(schema: Mapping[str, Any]) -> bool:
    if schema.get("type") in PLAIN:
        return True
    items: Any = schema.get("items")
    is_choice = isinstance(items, Mapping) and not items.keys().isdisjoint({"enum", "anyOf"})
    return schema.get("type") == "array" and is_choice


_WITH: Route = ("with",)


def check_reach(step: ActionModel, surroundings: Surroundings) -> Iterator[tuple[Route, str]]:
    """What a step reaches for in vain."""
    if step.run is not None:
        yield from _run(step.run, surroundings)
    if step.http is not None:
        yield from _http(step.http, surroundings)
    if step.python is not None:
        try:
            function = find_function(step.python)
        except InvalidValue as error:
            yield ("python",), str(error)
        else:
            yield from (((*_WITH, *route), message) for route, message in check_for_function(function, step.arguments))
    if step.call is not None and step.call.server not in surroundings.servers:
        known = ", ".join(sorted(surroundings.servers)) or "none"
        yield ("call", "server"), f"there is no server {step.call.server!r} in `servers`: there is {known}"
    if step.workflow is not None and step.workflow not in surroundings.workflows:
        known = ", ".join(sorted(surroundings.workflows))
        yield ("workflow",), f"there is no workflow {step.workflow!r}: there is {known}"
    takes = None if step.workflow is None else surroundings.workflows.get(step.workflow)
    if step.workflow is not None and takes is not None:
        found = check_for_workflow(step.workflow, takes, step.arguments)
        yield from (((*_WITH, *route), message) for route, message in found)
    if step.ask is not None:
        yield from ((("ask", "schema", *route), message) for route, message in check_question(step.ask.fields))
    if step.sleep is not None and not is_open(str(step.sleep)):
        try:
            source.seconds(step.sleep)
        except InvalidValue as error:
            yield ("sleep",), str(error)


def _run(run: RunModel, surroundings: Surroundings) -> Iterator[tuple[Route, str]]:
    if run.shell is not None and is_open(run.shell):
        yield ("run", "shell"), 'values must not become part of a script: pass them by `env`, and write "$NAME"'
    if run.argv is not None:
        program = text_of(run.argv[0])
        names = _names(program)
        if names is not None and names - {"env"}:
            yield ("run",), "callers must not choose the program: make the first item constant"
        elif not is_open(program) and not is_command(program, surroundings.folder):
            yield ("run",), why_no_command(program, surroundings.folder)
        for place, message in find_pasted([text_of(item) for item in run.argv], str(run.stdin)):
            yield ("run", "stdin") if place == INPUT else ("run", "argv", place), message
    if run.cwd is not None and not is_open(run.cwd):
        folder = (surroundings.folder / run.cwd).resolve()
        if not surroundings.allows_folder(folder):
            yield ("run", "cwd"), f"{run.cwd!r} is not in the file's folder: add it to `allow.folders`"


def is_command(program: str, folder: Path) -> bool:
    """Whether there is such a command."""
    return shutil.which(path_of(program, folder)) is not None


def why_no_command(program: str, folder: Path) -> str:
    """What is wrong with a command that is none, and what to do."""
    if "/" not in program:
        return f"there is no command {program!r}: install it, or see PATH"
    if Path(path_of(program, folder)).is_file():
        return f"{program!r} is not executable: chmod +x"
    return f"there is no file {program!r} in {folder}"


def path_of(program: str, folder: Path) -> str:
    """What to run: what has a slash is looked for from the file's folder, wherever it runs then."""
    return str(folder / program) if "/" in program else program


def _http(http: HttpModel, surroundings: Surroundings) -> Iterator[tuple[Route, str]]:
    prefix = http.url.split("{{")[0]
    # The host is constant where it ends before the first value.
    if not is_open(http.url) or prefix.count("/") > 2:
        try:
            check_url(prefix, surroundings)
        except ActionFailed as error:
            yield ("http", "url"), str(error)


def _names(text: str) -> frozenset[str] | None:
    """The names that a text begins from; None if it can't be read, which is told elsewhere."""
    try:
        return frozenset(chain[0] for one in Text.parse(text).expressions for chain in one.paths)
    except InvalidExpression:
        return None


def check_servers(model: FileModel, folder: Path) -> Iterator[tuple[Route, str]]:
    """What is wrong with each, and where."""
    nothing = frozenset[str]()
    names = Names(nothing, nothing, nothing, frozenset(model.allow.env), roots=frozenset({"env"}))
    for name, server in model.servers.items():
        for route, message in _check_server(server, names, folder):
            yield ("servers", name, *route), message


def _check_server(server: ServerModel, names: Names, folder: Path) -> Iterator[tuple[Route, str]]:
    for header, value in server.headers.items():
        for message in check_text(value, names):
            yield ("headers", header), message
    if server.url is not None and not server.url.startswith(("http://", "https://")):
        yield ("url",), "a URL begins with https:// or http://"
    if server.command is not None and not is_command(server.command[0], folder):
        yield ("command",), why_no_command(server.command[0], folder)
