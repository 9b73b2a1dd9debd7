"""Ending a command that was given workflows which can't be used."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from raincheck.cli.endings import Ending, Unusable, refuse, tell
from raincheck.cli.plain import harmless, json_of

if TYPE_CHECKING:
    from raincheck.workflows.definition import Definition
    from raincheck.workflows.faults import WorkflowFaults


def find_workflow(path: Path, definitions: "Mapping[str, Definition]", name: str) -> "Definition":
    """The workflow of this name.

    Raises:
        Unusable: there is none.
    """
    found = definitions.get(name)
    if found is None:
        raise Unusable(f"{path} has no workflow {name!r}: it has {', '.join(sorted(definitions))}")
    return found


def _refuse_faults(found: "WorkflowFaults", *, as_json: bool, ending: int) -> NoReturn:
    """End, and tell of each fault in a line of its own, as editors and other programs know them."""
    if as_json:
        faults = [asdict(fault) for fault in found.faults]
        typer.echo(json_of({"error": str(found), "faults": faults}, indent=None))
    for fault in found.faults:
        typer.echo(harmless(str(fault)), err=True)
    many = "1 fault" if len(found.faults) == 1 else f"{len(found.faults)} faults"
    tell(f"{many}: nothing of it can be used before that is mended")
    raise typer.Exit(ending)


def refuse_unusable(error: Exception, *, as_json: bool, faults: int = Ending.COULD_NOT_RUN) -> NoReturn:
    """End, and say why: of workflows fault by fault, and with another code if that is wanted."""
    from raincheck.workflows.faults import WorkflowFaults

    if isinstance(error, WorkflowFaults):
        _refuse_faults(error, as_json=as_json, ending=faults)
    refuse(str(error), as_json=as_json)
