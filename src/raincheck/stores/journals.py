"""Journals from rows: what an attempt needs to know of its task, read for it or found on the way."""

from collections.abc import Iterable, Sequence
from typing import Any

from raincheck.core.content import Journal
from raincheck.core.records import Task, TaskId
from raincheck.stores import rows


def journal_of(
    task: Task,
    payloads: Sequence[Any],
    steps: Sequence[rows.Row] = (),
    inputs: Sequence[rows.Row] = (),
    artifacts: Sequence[rows.Row] = (),
) -> Journal:
    """Its payloads are its arguments, its caller and its variables."""
    arguments, caller, variables = payloads
    names = tuple(name for (name,) in artifacts)
    steps_kept, asked = tuple(map(rows.step_of, steps)), tuple(map(rows.input_of, inputs))
    return Journal(task, arguments, caller, variables, steps_kept, asked, names)


def note_journals(journals: dict[TaskId, Journal], begun: Iterable[Task], found: Iterable[rows.Row]) -> None:
    """Remember the journals of tasks that have just been begun, of those for which all of it is in their row.

    At the end of a row are the payloads, and whether there is more.
    """
    whole = {rows.id_of(row): row for row in found if not row[-1]}
    journals.update((task.id, journal_of(task, whole[task.id][-4:-1])) for task in begun if task.id in whole)
