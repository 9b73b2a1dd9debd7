"""`raincheck workflow run`: run a workflow here, and see it through."""

from typing import Annotated

import typer

from raincheck.cli.book_option import BookOption
from raincheck.cli.endings import CODES, refuse
from raincheck.cli.store_option import StoreOption
from raincheck.cli.unusable import refuse_unusable
from raincheck.cli.wishes import PATIENCE, JsonOption, TimeoutOption, Wishes
from raincheck.cli.wishes import run as run_command
from raincheck.cli.workflow_check import FileArgument
from raincheck.errors import RaincheckError

# What follows a line with a backspace alone is printed as it stands.
EPILOG = f"""
Examples:

\b
  raincheck workflow run workflows.yaml release tag=v1.2
  raincheck workflow run workflows.yaml release @arguments.json --store tasks.db
  raincheck workflow run workflows.yaml release --from publish

Arguments are name=value, read as the workflow's input says; name:=JSON; @file.json or - (stdin) for an object with all
of them. With --from, what the steps before that one came to is taken from the latest run of this workflow, or from
the task that --task names, and so are its arguments, unless they are given anew. On a terminal, what the workflow asks
is asked there, and Ctrl-C offers to detach or to cancel. Tasks of this file that were left before go on meanwhile.
{CODES}"""


def run(
    file: FileArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which workflow to run.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="What to run it with.")
    ] = None,
    step: Annotated[
        str | None, typer.Option("--from", metavar="STEP", help="Begin there, with earlier results of what is before.")
    ] = None,
    task_id: Annotated[
        str | None, typer.Option("--task", metavar="ID", help="For --from: the task whose results to take.")
    ] = None,
    store: StoreOption = None,
    timeout: TimeoutOption = None,
    book: BookOption = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show what is logged meanwhile.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a workflow here, and wait for its result."""
    if task_id is not None and step is None:
        refuse("--task says whose results to take: say from which step on, with --from", as_json=as_json)
    # The SDK takes most of a second to import. Other commands do without it.
    from raincheck.cli.workflow_running import Asked, run_workflow
    from raincheck.cli.workflow_tasks import WorkflowTasks

    try:
        tasks = WorkflowTasks(file)
    except RaincheckError as error:
        refuse_unusable(error, as_json=as_json)
    wishes = Wishes(
        headers=None, named_book=book, within=PATIENCE, is_verbose=verbose, as_json=as_json, timeout=timeout
    )
    asked = Asked(name, arguments or [], store, step, task_id)
    run_command(run_workflow(tasks, asked, wishes), as_json=as_json)
