"""`raincheck tasks`: look at the tasks of a store, and steer them."""

import typer

from raincheck.cli import task_export, task_list, task_purge, task_retry, task_show, task_steer, task_watch

commands = typer.Typer(
    help="Look at the tasks of a store, and steer them.", no_args_is_help=True, rich_markup_mode=None
)
commands.command(epilog=task_list.EPILOG)(task_list.ls)
commands.command(epilog=task_show.EPILOG)(task_show.show)
commands.command(epilog=task_watch.EPILOG)(task_watch.watch)
commands.command(epilog=task_steer.CANCEL_EPILOG)(task_steer.cancel)
commands.command(epilog=task_retry.EPILOG)(task_retry.retry)
commands.command(epilog=task_steer.PAUSE_EPILOG)(task_steer.pause)
commands.command(epilog=task_steer.RESUME_EPILOG)(task_steer.resume)
commands.command(epilog=task_purge.EPILOG)(task_purge.purge)
commands.command(epilog=task_export.EPILOG)(task_export.export)
