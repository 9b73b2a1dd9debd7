"""Files of workflows: which they are, and what is in them."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from raincheck.errors import ConfigurationError

if TYPE_CHECKING:
    from raincheck.workflows.load import Workflows

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
        from raincheck.workflows.load import load_workflows
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
