"""`raincheck doctor`: check the health of a store and its tasks, with remedies."""

import asyncio
import json
from dataclasses import asdict

import typer
from rich.table import Table
from rich.text import Text

from raincheck.cli.operator import StoreOption, find_store_file, open_operator_store, store_command
from raincheck.cli.options import JsonOption
from raincheck.cli.output.results import make_console
from raincheck.clock import Clock
from raincheck.errors import NotAStore, SchemaMismatch, StoreError
from raincheck.operations.describe import describe_store, find_database
from raincheck.operations.health import HealthFinding, Severity, check_file, check_tasks, worst_severity

EPILOG = """
Examples:

\b
  raincheck doctor
  raincheck doctor --store /var/lib/tasks.db --json
  raincheck doctor --store postgresql://app@db.example.com/tasks

It only reads. Each line has a verdict (ok, warn or bad) and, if there is a problem, what to do. Exit codes: 0 success;
1 a finding is bad; 2 there is no such store, or it belongs to another program or a newer raincheck.
"""

STYLES = {Severity.OK: "green", Severity.WARN: "yellow", Severity.BAD: "bold red"}


@store_command
async def doctor(
    clock: Clock,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> bool:
    """Check the health of a store and its tasks."""
    location, findings = await examine(store, clock)
    worst = worst_severity(findings)
    if as_json:
        report = {"store": location, "verdict": worst, "findings": [asdict(finding) for finding in findings]}
        typer.echo(json.dumps(report, indent=2))
    else:
        print_checkup(location, findings)
    return worst is not Severity.BAD


async def examine(store: str | None, clock: Clock) -> tuple[str, list[HealthFinding]]:
    """Return the store's location, and all findings."""
    path = await asyncio.to_thread(find_store_file, store)
    location = await asyncio.to_thread(describe_store, store)
    findings: list[HealthFinding] = []
    if path is not None:
        findings += await asyncio.to_thread(check_file, path)
    try:
        if path is None:
            from raincheck.operations.database_health import check_database

            target = await asyncio.to_thread(find_database, store)
            assert target is not None  # noqa: S101 - the store is not in a file
            findings += await check_database(target, clock)
        async with open_operator_store(store, clock) as opened:
            findings.insert(0, HealthFinding.ok("opens", "the store can be opened"))
            findings += await check_tasks(opened, now=clock.now())
    except StoreError as error:
        if path is None and isinstance(error, NotAStore | SchemaMismatch):
            raise
        findings.insert(0, HealthFinding.bad("opens", str(error), "do that, then run doctor again"))
    return location, findings


def print_checkup(location: str, findings: list[HealthFinding]) -> None:
    """Print a line for each finding, with the remedy below each problem."""
    console = make_console()
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    for finding in findings:
        text = Text(finding.message)
        if finding.remedy is not None:
            text.append(f"\n-> {finding.remedy}", "bold")
        table.add_row(Text(finding.verdict, STYLES[finding.verdict]), finding.name, text)
    console.print(table)
    console.print()
    counts = {verdict: sum(finding.verdict is verdict for finding in findings) for verdict in Severity}
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    console.print(Text(f"{location}: {summary}", STYLES[worst_severity(findings)]), soft_wrap=True)
