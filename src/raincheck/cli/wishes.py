"""What the commands that talk to a server can be told, and how they are run."""

from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from raincheck.cli.endings import Ending, refuse
from raincheck.cli.tidying import run_tidily
from raincheck.errors import RaincheckError

PATIENCE = 30.0
"""Seconds for a server to start and to greet us."""

HeaderOption = Annotated[
    list[str] | None, typer.Option("--header", metavar="HEADER", help="A header to send, 'Name: value'. Repeatable.")
]
TimeoutOption = Annotated[
    float | None, typer.Option(metavar="SECONDS", min=0, help="How long to wait. A task goes on after that.")
]
ConnectOption = Annotated[
    float, typer.Option("--connect-timeout", metavar="SECONDS", min=0.1, help="How long the server may take to greet.")
]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", help="Show what a server that is a command says on stderr, as it says it.")
]
ServerOption = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="The server's URL again, where it has a password or a token in it."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a command was told, beside what it is about."""

    headers: list[str] | None
    named_book: Path | None
    within: float
    """Seconds for the server to greet us."""
    is_verbose: bool
    as_json: bool
    timeout: float | None = None
    server: str | None = None
    """The address of a call that is under way, where the book does not have all of it."""


def run(work: Coroutine[Any, Any, Ending], *, as_json: bool) -> NoReturn:
    """Do it, and end as it says."""
    try:
        ending = run_tidily(work)
    except RaincheckError as error:
        refuse(str(error), as_json=as_json)
    raise typer.Exit(ending)
