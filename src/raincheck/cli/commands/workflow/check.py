"""`raincheck workflow check` and `graph`: report all faults of a file of workflows at once, and draw workflows."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raincheck.cli.exit_codes import ExitCode, UsageError, echo_err, fail_with_error, find_workflow
from raincheck.errors import RaincheckError
from raincheck.operations.describe import format_json, printable
from raincheck.workflows.files import load_workflow_files

if TYPE_CHECKING:
    from raincheck.workflows.load import Workflows


# Text after a line that contains only \b is not rewrapped.
CHECK_EPILOG = """
Examples:

\b
  raincheck workflow check workflows.yaml
  raincheck workflow check workflows/ --json

Nothing is run, and nothing is reached. Faults are told one a line, as FILE:LINE: WHERE: MESSAGE. It ends with 0 if
there are none, with 1 if there are some, or with 2 if there is no such file.
"""

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="A file of workflows, or a folder of such files.", show_default=False)
]


def check(
    file: FileArgument,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Say what is wrong with a file of workflows, or what there is in it."""
    try:
        definitions = load_workflow_files(file).definitions
    except RaincheckError as error:
        fail_with_error(error, as_json=as_json, diagnostics_exit_code=ExitCode.FAILED)
    if as_json:
        shown = [
            {"name": one.name, "version": one.version, "description": one.description, "input": one.input_schema}
            for one in definitions.values()
        ]
        typer.echo(format_json({"faults": [], "workflows": shown}))
        return
    many = "1 workflow" if len(definitions) == 1 else f"{len(definitions)} workflows"
    typer.echo(f"{file}: {many}, no faults")
    for one in definitions.values():
        takes = ", ".join(one.input_schema.get("properties") or ()) or "nothing"  # type: ignore[union-attr] # of an object
        said = f": {printable(one.description)}" if one.description else ""
        typer.echo(f"  {one.name} (version {one.version}, takes {takes}){said}")


# Text after a line that contains only \b is not rewrapped.
GRAPH_EPILOG = """
Examples:

\b
  raincheck workflow graph workflows.yaml release
  raincheck workflow graph workflows.yaml release --format svg --output release.svg

Mermaid is text that GitHub, GitLab and many editors draw; without a NAME, all workflows of the file are printed. SVG is
a picture of one workflow, for any browser. It ends with 0, or with 2 if the file, or what is to be written, can't be
used.
"""


class GraphFormat(StrEnum):
    """The format of a drawing."""

    MERMAID = "mermaid"
    SVG = "svg"


def graph(
    file: FileArgument,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Which workflow to draw.")] = None,
    kind: Annotated[
        GraphFormat, typer.Option("--format", metavar="FORMAT", help="mermaid, or svg.", show_default=False)
    ] = GraphFormat.MERMAID,
    output: Annotated[Path | None, typer.Option(metavar="PATH", help="Write it there, and not to stdout.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object with what is drawn, by workflow.")
    ] = False,
) -> None:
    """Draw workflows, as Mermaid text or as SVG."""
    try:
        drawn = _draw(load_workflow_files(file), name, kind, may_be_many=as_json)
        text = _as_json(drawn) if as_json else "\n".join(drawn.values())
        if output is None:
            typer.echo(text, nl=not text.endswith("\n"))
        else:
            _write(output, text)
            echo_err(f"wrote {output}")
    except RaincheckError as error:
        fail_with_error(error, as_json=as_json)


def _draw(workflows: "Workflows", name: str | None, kind: GraphFormat, *, may_be_many: bool) -> dict[str, str]:
    from raincheck.workflows.graph import as_mermaid, as_svg, graph_of

    chosen = (
        list(workflows.definitions.values())
        if name is None
        else [find_workflow(workflows.file, workflows.definitions, name)]
    )
    if kind is GraphFormat.SVG and len(chosen) > 1 and not may_be_many:
        names = ", ".join(sorted(workflows.definitions))
        raise UsageError(f"a picture is of one workflow, and {workflows.file} has several: say which of {names}")
    draw = as_svg if kind is GraphFormat.SVG else as_mermaid
    drawn = {one.name: draw(graph_of(one)) for one in chosen}
    if len(drawn) > 1 and not may_be_many:
        return {one: f"%% {one}\n{text}" for one, text in drawn.items()}
    return drawn


def _as_json(drawn: dict[str, str]) -> str:
    from raincheck.operations.describe import format_json

    return format_json(drawn)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} can't be written ({error.strerror}): name another file with --output") from error
