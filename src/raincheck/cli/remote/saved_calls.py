"""The saved calls as the commands use them: save a call, find one by its id, and list them all."""

import asyncio
from dataclasses import asdict, replace

import typer
from rich.table import Table

from raincheck.cli.exit_codes import ExitCode, UsageError
from raincheck.cli.output.results import make_console
from raincheck.client import SavedCalls, TaskRef
from raincheck.errors import ConfigurationError
from raincheck.operations.describe import SHORT_ID_LENGTH, format_json, printable
from raincheck.operations.redact import redact_server

MAX_IDS_SHOWN = 5

OUR_LENGTH = 44
"""The number of characters of a whole raincheck id, which fits in one line."""


class DeferredSavedCalls(SavedCalls):
    """Saved calls of one command. A save completes even if its waiter is cancelled; removal is deferred.

    A call that has ended stays saved until `remove_ended`: a result that can't be printed can be fetched again.
    """

    _writing: "asyncio.Future[None] | None" = None
    _ended_ref: TaskRef | None = None
    task_ref: TaskRef | None = None
    """The last reference, set as soon as its task exists."""

    async def add(self, task_ref: TaskRef) -> None:
        self.task_ref = task_ref
        self._writing = asyncio.ensure_future(super().add(task_ref))
        await asyncio.shield(self._writing)

    async def remove(self, task_ref: TaskRef) -> None:
        self._ended_ref = task_ref

    async def remove_ended(self) -> None:
        """Remove the ended call after its result was printed."""
        if self._ended_ref is not None:
            await super().remove(self._ended_ref)
            self._ended_ref = None

    async def wait_until_saved(self) -> str | None:
        """Wait until the reference is saved. Returns the reason if it could not be."""
        if self._writing is not None:
            try:
                await asyncio.shield(self._writing)
            except ConfigurationError as error:
                return str(error)
        return None


def redact_task_ref(task_ref: TaskRef) -> TaskRef:
    """Return a reference without secrets, for printing: the file is private to its owner, output may go anywhere."""
    return replace(task_ref, server=redact_server(task_ref.server))


async def find_task_ref(saved_calls: SavedCalls, id_prefix: str) -> TaskRef:
    """Return the saved call whose task has this id, or an id with this prefix.

    Raises:
        UsageError: no call matches, or several do.
    """
    start = id_prefix.strip().removesuffix("...").removesuffix("…")
    slips = await saved_calls.list_refs()
    exact = [slip for slip in slips if slip.task_id in (id_prefix, start)]
    found = exact or [slip for slip in slips if start and slip.task_id.startswith(start)]
    if len(found) == 1:
        return found[0]
    if found:
        named = ", ".join(_unique_prefixes([slip.task_id for slip in found])[:MAX_IDS_SHOWN])
        raise UsageError(f"{len(found)} ids begin with {printable(id_prefix)!r} ({named}): write more of it")
    raise UsageError(
        f"no call {printable(id_prefix)!r} is in {saved_calls.path}: raincheck wait lists those that are, "
        f"without those whose end was told, or which were cancelled"
    )


async def print_saved_calls(saved_calls: SavedCalls, *, as_json: bool) -> ExitCode:
    """List the saved calls, oldest first."""
    slips = [redact_task_ref(slip) for slip in await saved_calls.list_refs()]
    if as_json:
        typer.echo(format_json([asdict(slip) for slip in slips]))
        return ExitCode.SUCCESS
    console = make_console()
    if not slips:
        console.print("no calls are under way", highlight=False)
        return ExitCode.SUCCESS
    table = Table(box=None, pad_edge=False, header_style="bold")
    ids = _unique_prefixes([slip.task_id for slip in slips])
    table.add_column("task", no_wrap=max(map(len, ids)) <= OUR_LENGTH, overflow="fold")
    table.add_column("tool", no_wrap=True)
    table.add_column("since", no_wrap=True)
    table.add_column("server", overflow="fold")
    for name, slip in zip(ids, slips, strict=True):
        table.add_row(name, printable(slip.tool), printable(slip.taken_at), printable(slip.server))
    console.print(table)
    return ExitCode.SUCCESS


def _unique_prefixes(ids: list[str]) -> list[str]:
    """Return the shortest prefixes that distinguish all ids."""
    longest = max(map(len, ids))
    kinds = len(set(ids))
    length = next(
        (one for one in range(SHORT_ID_LENGTH, longest) if len({name[:one] for name in ids}) == kinds), longest
    )
    return [printable(name[:length]) for name in ids]
