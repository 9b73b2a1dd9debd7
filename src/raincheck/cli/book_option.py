"""Where the book of calls that are under way is."""

import os
from pathlib import Path
from typing import Annotated

import typer
from platformdirs import user_state_path

from raincheck.cli.endings import Unusable

VARIABLE = "RAINCHECK_BOOK"

BookOption = Annotated[
    Path | None,
    typer.Option(
        "--book",
        metavar="PATH",
        help=f"The file with the calls under way. Else {VARIABLE}, else one in your state folder.",
    ),
]


def book_path(named: Path | None) -> Path:
    """The file of that name, or the usual one.

    Raises:
        Unusable: there can't be one.
    """
    found = named or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if found is not None:
        found = found.expanduser().absolute()
        if not found.parent.is_dir():
            raise Unusable(f"there is no folder {found.parent} for the book {found.name}: make it first")
        return found
    folder = user_state_path("raincheck", appauthor=False)
    try:
        # For this user alone: the addresses of servers may tell more than others should know.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Unusable(
            f"the folder {folder} for the book can't be made ({error.strerror}): name one by {VARIABLE}"
        ) from error
    return folder / "calls.book"
