"""`raincheck tools`: explain what the calls of each tool become, and why.

Printed as a table of what callers of each tool receive, with colours on a terminal.
"""

import asyncio
import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from raincheck.cli.exit_codes import echo_err, fail_with_error
from raincheck.cli.loader import load_tasks, redirect_stdout_to_stderr
from raincheck.cli.output.results import make_console
from raincheck.errors import RaincheckError
from raincheck.server.explain import CallerOutcome, CallerTreatment, Explanation, ToolExplanation
from raincheck.wire.fallback_text import format_duration

EPILOG = """
TARGET is a file or a module, optionally with a colon and the name of the Tasks object or of the server:

\b
  raincheck tools server.py
  raincheck tools server.py:mcp
  raincheck tools package.server:tasks --store /var/lib/tasks.db --json

TARGET is loaded, but not served. Configuration errors that would keep the server from starting are printed on stderr.
Exit codes: 0 success; 2 the target or the store can't be used, or --store names a file that does not exist.
"""


def tools(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="What to load, such as server.py:mcp.")],
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="The store to read measurements from, if not the server's own.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
) -> None:
    """Explain what the calls of each tool become, and why.

    A call becomes a result, which the caller waits for, or a task. This reports the current behaviour.
    """
    try:
        with redirect_stdout_to_stderr():
            explanation = asyncio.run(load_tasks(target).explain(store))
    except RaincheckError as error:
        fail_with_error(error, as_json=as_json)
    for warning in explanation.warnings:
        echo_err(warning)
    if as_json:
        if not any(tool.measured for tool in explanation.tools):
            typer.echo(explanation.source, err=True)
        typer.echo(json.dumps([asdict(tool) for tool in explanation.tools], indent=2))
    else:
        print_explanation(explanation)


STYLES = {
    CallerOutcome.RESULT: "green",
    CallerOutcome.TASK: "cyan",
    CallerOutcome.FALLBACK: "yellow",
    CallerOutcome.REFUSED: "bold red",
}

AFTER_WAIT = {CallerOutcome.TASK: "gets a task", CallerOutcome.FALLBACK: "gets a text about the task"}


def print_explanation(explanation: Explanation, console: Console | None = None) -> None:
    """Print a row for each tool, and the source of the measurements."""
    console = make_console(console)
    if explanation.tools:
        console.print(_table(explanation.tools))
        console.print()
    else:
        console.print("no calls become tasks: decorate a tool with @tasks.tool, or enable one with tasks.enable")
    console.print(Text(explanation.source, "dim"), soft_wrap=True)


def _table(tools: tuple[ToolExplanation, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("tool", overflow="fold", max_width=24)
    table.add_column("measured", no_wrap=True)
    table.add_column("callers with tasks", ratio=1)
    table.add_column("callers without tasks", ratio=1)
    for number, tool in enumerate(tools):
        if number:
            table.add_row()
        name = Text(f"{tool.name}\n").append(tool.mode, "dim")
        table.add_row(name, _measured(tool), _treatment_text(tool.with_tasks), _treatment_text(tool.without_tasks))
    return table


def _measured(tool: ToolExplanation) -> str:
    if tool.p50_seconds is None or tool.p90_seconds is None:
        return "no calls"
    calls = "1 call" if tool.measured == 1 else f"{tool.measured} calls"
    return f"{calls}\nhalf in {format_duration(tool.p50_seconds)}\n9 of 10 in {format_duration(tool.p90_seconds)}"


def _treatment_text(treatment: CallerTreatment) -> Text:
    if treatment.outcome is CallerOutcome.REFUSED:
        outcome = "is refused"
    elif treatment.waits_seconds is None:
        outcome = "waits for the result"
    else:
        after, seconds = AFTER_WAIT[treatment.outcome], treatment.waits_seconds
        outcome = f"waits up to {format_duration(seconds)}, then {after}" if seconds else f"{after} at once"
    return Text(f"{outcome}\n", STYLES[treatment.outcome]).append(treatment.reason, "not bold default dim")
