"""Files of workflows, as somebody names them: which they are, what is in them, and what is wrong with them."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from raincheck.cli.endings import Ending, Unusable, refuse, tell
from raincheck.cli.plain import harmless, json_of
from raincheck.errors import ConfigurationError

if TYPE_CHECKING:
    from raincheck.workflows.definition import Definition
    from raincheck.workflows.faults import WorkflowFaults
    from raincheck.workflows.file import Workflows

SUFFIXES = (".yaml", ".yml")


def is_workflows(target: str) -> bool:
    """Whether a target means workflows: it is a file of YAML, or a folder with such files that is no package."""
    path = Path(target)
    is_folder = path.is_dir() and not (path / "__init__.py").exists()
    return target.lower().endswith(SUFFIXES) or (is_folder and any(files_in(path)))


def files_in(path: Path) -> Iterator[Path]:
    """The file itself, or those of a folder."""
    if not path.is_dir():
        yield path
        return
    yield from (one for one in sorted(path.iterdir()) if one.suffix in SUFFIXES and one.is_file())


def load(path: Path) -> "Workflows":
    """The workflows of a file or a folder. What they call in Python is looked for there, and in the current folder.

    Raises:
        WorkflowFaults: they can't be used; it names every fault.
        ConfigurationError: there are none, or what it takes to read them is not installed.
    """
    if not path.exists():
        raise ConfigurationError(f"there is no file {path} (looked for it from {Path.cwd()}): write where it is")
    try:
        from raincheck.workflows.file import load_workflows
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "raincheck":
            raise
        how = "pip install 'raincheck[workflows]' (in a clone: pip install '.[workflows]')"
        raise ConfigurationError(f"{error.name!r} is missing, which workflows need: install it with {how}") from error
    folder = path if path.is_dir() else path.parent
    for where in (Path.cwd(), folder.resolve()):
        if str(where) not in sys.path:
            sys.path.insert(0, str(where))
    return load_workflows(path)


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
