"""The saved calls as the commands use them: save a call, find one by its id, and list all."""

import asyncio
from dataclasses import asdict, replace

import typer
from rich.table import Table

from raincheck.cli.exit_codes import ExitCode, UsageError, echo_err
from raincheck.cli.options import ConnectionOptions, calls_path
from raincheck.cli.output.results import make_console
from raincheck.client import SavedCalls, TaskRef
from raincheck.errors import ConfigurationError
from raincheck.operations.describe import SHORT_ID_LENGTH, format_id, format_json, printable, redact_server

MAX_IDS_SHOWN = 5

MAX_UNFOLDED_LENGTH = 44
"""The length of the ids that raincheck creates, which fit in one line. Longer ids are folded."""


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
    task_refs = await saved_calls.list_refs()
    exact = [task_ref for task_ref in task_refs if task_ref.task_id in (id_prefix, start)]
    matches = exact or [task_ref for task_ref in task_refs if start and task_ref.task_id.startswith(start)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        shown = ", ".join(_unique_prefixes([task_ref.task_id for task_ref in matches])[:MAX_IDS_SHOWN])
        raise UsageError(f"{len(matches)} ids start with {printable(id_prefix)!r} ({shown}): write more of the id")
    raise UsageError(
        f"no call {printable(id_prefix)!r} is in {saved_calls.path}: raincheck wait lists the saved calls. A call is "
        f"removed once its outcome was printed or it was cancelled"
    )


async def print_saved_calls(options: ConnectionOptions) -> ExitCode:
    """List the saved calls, oldest first."""
    saved_calls = SavedCalls(calls_path(options.calls_path))
    task_refs = [redact_task_ref(task_ref) for task_ref in await saved_calls.list_refs()]
    if options.as_json:
        typer.echo(format_json([asdict(task_ref) for task_ref in task_refs]))
        return ExitCode.SUCCESS
    console = make_console()
    if not task_refs:
        console.print("no saved calls", highlight=False)
        return ExitCode.SUCCESS
    table = Table(box=None, pad_edge=False, header_style="bold")
    ids = _unique_prefixes([task_ref.task_id for task_ref in task_refs])
    table.add_column("task", no_wrap=max(map(len, ids)) <= MAX_UNFOLDED_LENGTH, overflow="fold")
    table.add_column("tool", no_wrap=True)
    table.add_column("since", no_wrap=True)
    table.add_column("server", overflow="fold")
    for short_id, task_ref in zip(ids, task_refs, strict=True):
        table.add_row(short_id, printable(task_ref.tool), printable(task_ref.taken_at), printable(task_ref.server))
    console.print(table)
    return ExitCode.SUCCESS


async def forget_task(id_prefix: str, options: ConnectionOptions) -> ExitCode:
    """Remove a saved call."""
    saved_calls = SavedCalls(calls_path(options.calls_path))
    task_ref = await find_task_ref(saved_calls, id_prefix)
    await saved_calls.remove(task_ref)
    if options.as_json:
        typer.echo(format_json({"task_id": task_ref.task_id, "forgotten": True}))
    name = f"task {format_id(task_ref.task_id)} of {printable(redact_server(task_ref.server))}"
    echo_err(f"removed {name} from the saved calls. The task itself was not cancelled")
    return ExitCode.SUCCESS


def _unique_prefixes(ids: list[str]) -> list[str]:
    """Return prefixes of one length, the shortest that distinguishes all ids."""
    longest = max(map(len, ids))
    distinct = len(set(ids))
    length = next(
        (size for size in range(SHORT_ID_LENGTH, longest) if len({task_id[:size] for task_id in ids}) == distinct),
        longest,
    )
    return [printable(task_id[:length]) for task_id in ids]
