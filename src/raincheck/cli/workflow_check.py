"""`raincheck workflow check`: everything that is wrong with a file of workflows, at once."""

from pathlib import Path
from typing import Annotated

import typer

from raincheck.cli.endings import Ending
from raincheck.cli.plain import json_of, printable
from raincheck.cli.unusable import refuse_unusable
from raincheck.cli.workflow_files import load
from raincheck.errors import RaincheckError

# What follows a line with a backspace alone is printed as it stands.
EPILOG = """
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
        definitions = load(file).definitions
    except RaincheckError as error:
        refuse_unusable(error, as_json=as_json, faults=Ending.FAILED)
    if as_json:
        shown = [
            {"name": one.name, "version": one.version, "description": one.description, "input": one.input_schema}
            for one in definitions.values()
        ]
        typer.echo(json_of({"faults": [], "workflows": shown}))
        return
    many = "1 workflow" if len(definitions) == 1 else f"{len(definitions)} workflows"
    typer.echo(f"{file}: {many}, no faults")
    for one in definitions.values():
        takes = ", ".join(one.input_schema.get("properties") or ()) or "nothing"  # type: ignore[union-attr] # of an object
        said = f": {printable(one.description)}" if one.description else ""
        typer.echo(f"  {one.name} (version {one.version}, takes {takes}){said}")
