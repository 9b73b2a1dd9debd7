"""The program, put together from its groups of commands."""

import typer

from raincheck.cli import conformance, tools

program = typer.Typer(
    name="raincheck",
    help="Durable, long-running MCP tasks: a slip now, the result later.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
program.add_typer(conformance.commands, name="conformance")
program.command(epilog=tools.EPILOG)(tools.tools)


@program.callback()
def raincheck() -> None:
    """Durable, long-running MCP tasks: a slip now, the result later."""
