"""The program, put together from its groups of commands."""

from importlib.metadata import version
from typing import Annotated

import typer

from raincheck.cli import (
    call,
    conformance,
    doctor,
    held,
    migrate,
    serve,
    stats,
    task_commands,
    tools,
    worker,
    workflow_commands,
)
from raincheck.cli.demo import command as demo

program = typer.Typer(
    name="raincheck",
    help="Durable, long-running MCP tasks: a slip now, the result later.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
program.add_typer(conformance.commands, name="conformance")
program.command(epilog=call.EPILOG)(call.call)
program.command(epilog=held.WAIT)(held.wait)
program.command(epilog=held.GET)(held.get)
program.command(epilog=held.CANCEL)(held.cancel)
program.command(epilog=held.ANSWER)(held.answer)
program.command(epilog=serve.EPILOG)(serve.serve)
program.command(epilog=worker.EPILOG)(worker.worker)
program.command(epilog=tools.EPILOG)(tools.tools)
program.add_typer(workflow_commands.commands, name="workflow")
program.add_typer(task_commands.commands, name="tasks")
program.command(epilog=demo.EPILOG, short_help="See it work: three callers, and a server that dies.")(demo.demo)
program.command(epilog=doctor.EPILOG)(doctor.doctor)
program.command(epilog=migrate.EPILOG)(migrate.migrate)
program.command(epilog=stats.EPILOG)(stats.stats)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"raincheck {version('raincheck')}")
        raise typer.Exit


@program.callback()
def raincheck(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Say which version this is, and exit.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Durable, long-running MCP tasks: a slip now, the result later."""
