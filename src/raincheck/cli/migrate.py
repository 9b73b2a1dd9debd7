"""`raincheck migrate`: brings the schema of a store up to date."""

import typer

from raincheck.cli.endings import refuse
from raincheck.cli.plain import json_of
from raincheck.cli.store_option import JsonOption, StoreOption
from raincheck.cli.tidying import run_tidily
from raincheck.errors import RaincheckError

# What follows a line with a backspace alone is printed as it stands.
EPILOG = """
Examples:

\b
  raincheck migrate --store postgresql://owner@db.example.com/tasks
  raincheck migrate --store 'postgresql://owner@db.example.com/app?schema=tasks&procrastinate_schema=jobs'
  raincheck migrate --store /var/lib/tasks.db --json

In a database it makes the tables of raincheck in the schema that the URL names by ?schema= (else raincheck), and those
of its queue in that of ?procrastinate_schema= (else the same). Servers and workers do the same when they start, if they
may: with this, they need no right to make tables. What can't be done whole is not done at all. It ends with 0, also if
there was nothing to do, or with 2 if the store can't be used.
"""


def migrate(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Make a store's tables, or bring them up to date."""
    from raincheck.cli.migrating import migrate_store

    try:
        done = run_tidily(migrate_store(store))
    except RaincheckError as error:
        refuse(str(error), as_json=as_json)
    typer.echo(json_of(done.facts) if as_json else str(done))
