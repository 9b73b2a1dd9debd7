"""Find and load workflow files."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from raincheck.errors import ConfigurationError

if TYPE_CHECKING:
    from raincheck.workflows.load import Workflows

SUFFIXES = (".yaml", ".yml")


def is_workflow_path(target: str) -> bool:
    """Return whether a target names workflows: a YAML file, or a folder of YAML files that is not a package."""
    path = Path(target)
    is_folder = path.is_dir() and not (path / "__init__.py").exists()
    return target.lower().endswith(SUFFIXES) or (is_folder and any(files_in(path)))


def files_in(path: Path) -> Iterator[Path]:
    """Yield the file itself, or the workflow files of a folder."""
    if not path.is_dir():
        yield path
        return
    yield from (file for file in sorted(path.iterdir()) if file.suffix in SUFFIXES and file.is_file())


def load_workflow_files(path: Path) -> "Workflows":
    """Load the workflows of a file or a folder. Their Python functions are imported from there or the current folder.

    Raises:
        InvalidWorkflow: they are invalid; it lists every error.
        ConfigurationError: the path does not exist, or the libraries that read workflows are not installed.
    """
    if not path.exists():
        raise ConfigurationError(f"there is no file {path} (relative to {Path.cwd()}): correct the path")
    try:
        from raincheck.workflows.load import load_workflows
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "raincheck":
            raise
        command = "pip install 'raincheck[workflows]' (in a clone: pip install '.[workflows]')"
        raise ConfigurationError(f"workflows need {error.name!r}, which is not installed: {command}") from error
    folder = path if path.is_dir() else path.parent
    for parent in (Path.cwd(), folder.resolve()):
        if str(parent) not in sys.path:
            sys.path.insert(0, str(parent))
    return load_workflows(path)
