"""`raincheck workflow check` and `graph`: report all faults of a file of workflows at once, and draw workflows."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raincheck.cli.exit_codes import ExitCode, UsageError, echo_err, fail_with_error, find_workflow
from raincheck.cli.options import JsonOption
from raincheck.errors import RaincheckError
from raincheck.operations.describe import format_json, printable
from raincheck.workflows.definition import load_workflow_files

if TYPE_CHECKING:
    from raincheck.workflows.load import Workflows


CHECK_EPILOG = """
Examples:

\b
  raincheck workflow check workflows.yaml
  raincheck workflow check workflows/ --json

Nothing is run, and no connection is made. Each fault is one line, as FILE:LINE: WHERE: MESSAGE. Exit codes: 0 no
faults; 1 the file has faults; 2 there is no such file.
"""

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="A file of workflows, or a folder of such files.", show_default=False)
]


def check(file: FileArgument, as_json: JsonOption = False) -> None:
    """Check a file of workflows, and list what it contains."""
    try:
        definitions = load_workflow_files(file).definitions
    except RaincheckError as error:
        fail_with_error(error, as_json=as_json, diagnostics_exit_code=ExitCode.FAILED)
    if as_json:
        shown = [
            {
                "name": definition.name,
                "version": definition.version,
                "description": definition.description,
                "input": definition.input_schema,
                "unsafe": list(definition.unsafe_steps),
            }
            for definition in definitions.values()
        ]
        typer.echo(format_json({"faults": [], "workflows": shown}))
        return
    count = "1 workflow" if len(definitions) == 1 else f"{len(definitions)} workflows"
    typer.echo(f"{file}: {count}, no faults")
    for definition in definitions.values():
        takes = ", ".join(definition.input_schema.get("properties") or ()) or "nothing"  # type: ignore[union-attr] # of an object
        description = f": {printable(definition.description)}" if definition.description else ""
        typer.echo(f"  {definition.name} (version {definition.version}, takes {takes}){description}")
        if definition.unsafe_steps:
            typer.echo(f"    unsafe: {', '.join(definition.unsafe_steps)}")


GRAPH_EPILOG = """
Examples:

\b
  raincheck workflow graph workflows.yaml release
  raincheck workflow graph workflows.yaml release --format svg --output release.svg

Mermaid is text that GitHub, GitLab and many editors draw; without a NAME, all workflows of the file are printed. SVG is
a picture of one workflow, for any browser. Exit codes: 0 success; 2 the file can't be used, or the output can't be
written.
"""


class GraphFormat(StrEnum):
    """The format of a drawing."""

    MERMAID = "mermaid"
    SVG = "svg"


def graph(
    file: FileArgument,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The workflow to draw.")] = None,
    kind: Annotated[
        GraphFormat, typer.Option("--format", metavar="FORMAT", help="mermaid, or svg.", show_default=False)
    ] = GraphFormat.MERMAID,
    output: Annotated[Path | None, typer.Option(metavar="PATH", help="Write to this file instead of stdout.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object of drawings, by workflow.")] = False,
) -> None:
    """Draw workflows, as Mermaid text or as SVG."""
    try:
        drawn = _draw(load_workflow_files(file), name, kind, allow_many=as_json)
        text = format_json(drawn) if as_json else "\n".join(drawn.values())
        if output is None:
            typer.echo(text, nl=not text.endswith("\n"))
        else:
            _write(output, text)
            echo_err(f"wrote {output}")
    except RaincheckError as error:
        fail_with_error(error, as_json=as_json)


def _draw(workflows: "Workflows", name: str | None, kind: GraphFormat, *, allow_many: bool) -> dict[str, str]:
    from raincheck.workflows.graph import as_mermaid, as_svg, graph_of

    chosen = list(workflows.definitions.values())
    if name is not None:
        chosen = [find_workflow(workflows.file, workflows.definitions, name)]
    if kind is GraphFormat.SVG and len(chosen) > 1 and not allow_many:
        names = ", ".join(sorted(workflows.definitions))
        raise UsageError(f"an SVG shows one workflow, but {workflows.file} has several: name one of {names}")
    draw = as_svg if kind is GraphFormat.SVG else as_mermaid
    drawn = {definition.name: draw(graph_of(definition)) for definition in chosen}
    if len(drawn) > 1 and not allow_many:
        return {name: f"%% {name}\n{text}" for name, text in drawn.items()}
    return drawn


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} can't be written ({error.strerror}): name another file with --output") from error
