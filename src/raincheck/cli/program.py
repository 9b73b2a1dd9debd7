"""The program, put together from its groups of commands."""

import typer

from raincheck.cli import call, conformance, doctor, held, serve, stats, task_commands, tools
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
program.command(epilog=tools.EPILOG)(tools.tools)
program.add_typer(task_commands.commands, name="tasks")
program.command(epilog=demo.EPILOG)(demo.demo)
program.command(epilog=doctor.EPILOG)(doctor.doctor)
program.command(epilog=stats.EPILOG)(stats.stats)


@program.callback()
def raincheck() -> None:
    """Durable, long-running MCP tasks: a slip now, the result later."""
