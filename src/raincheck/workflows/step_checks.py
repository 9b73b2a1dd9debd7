"""Whether what a step reaches for is there: commands, functions, servers, hosts, workflows, folders."""

import shutil
from collections.abc import Iterator
from pathlib import Path

from raincheck.errors import InvalidValue
from raincheck.workflows import spans
from raincheck.workflows.action import ActionFailed
from raincheck.workflows.action_model import ActionModel, HttpModel, RunModel
from raincheck.workflows.argument_checks import check_for_function, check_for_workflow, check_question
from raincheck.workflows.bounded_http import check_url
from raincheck.workflows.expressions import InvalidExpression, Text, is_open
from raincheck.workflows.interpreters import INPUT, find_pasted
from raincheck.workflows.sandbox import text_of
from raincheck.workflows.steps_python import find_function
from raincheck.workflows.surroundings import Surroundings
from raincheck.workflows.yaml_values import Route

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
            spans.seconds(step.sleep)
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
