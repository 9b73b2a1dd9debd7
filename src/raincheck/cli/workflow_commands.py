"""`raincheck workflow`: check, draw and run the workflows of a file, and steer their processes."""

import typer

from raincheck.cli import workflow_check, workflow_graph, workflow_run, workflow_state

commands = typer.Typer(
    help="Check, draw and run workflows, and steer their processes.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
commands.command(epilog=workflow_check.EPILOG)(workflow_check.check)
commands.command(epilog=workflow_graph.EPILOG)(workflow_graph.graph)
commands.command(epilog=workflow_run.EPILOG)(workflow_run.run)
commands.command(epilog=workflow_state.STATE_EPILOG)(workflow_state.state)
commands.command(epilog=workflow_state.TAKE_EPILOG)(workflow_state.take)
