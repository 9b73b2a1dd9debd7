"""`raincheck tasks show`: everything about one task, with advice for the operator.

The output has the task's facts, its history, its payloads, and what the operator can do next.
"""

import json
import shlex
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, cast

import typer
from rich.table import Table
from rich.text import Text

from raincheck.cli.operator import StoreOption, open_operator_store, store_command
from raincheck.cli.options import JsonOption
from raincheck.cli.output import results
from raincheck.clock import Clock
from raincheck.core.lifecycle import Phase
from raincheck.core.records import Task
from raincheck.operations.describe import (
    format_age,
    format_command,
    format_moment,
    format_owner,
    format_task_progress,
    format_tool,
    printable,
    redact_store_url,
)
from raincheck.operations.select import find_task
from raincheck.operations.serialize import load_task_document
from raincheck.wire.fallback_text import clip_text, format_duration

PREVIEW_LENGTH = 300
"""The maximum number of characters of a payload without `--full`."""

MAX_UNFOLDED_LENGTH = 24

LAST_LINES = 3
"""The last lines of a traceback that are shown without `--full`: the location, its source line, and the error."""

HISTORY_SHOWN = 40
"""The entries of a history that are shown without `--full`: the first, and the latest."""


def print_task(task: Task, document: dict[str, Any], advice: list[str], *, now: datetime, is_full: bool) -> None:
    """Print a task. `document` is the result of `load_task_document` for it."""
    console = results.make_console()
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    for name, value in _facts(task, now):
        facts.add_row(name, value)
    for name in ("arguments", "variables", "outcome"):
        payload = _payload(document, name, is_full=is_full)
        if payload is not None:
            facts.add_row(name, payload)
    console.print(facts)
    for title, rows in (
        ("questions", [_question(item, is_full=is_full) for item in document["inputs"]]),
        ("steps", [_step(item, is_full=is_full) for item in document["steps"]]),
        ("artifacts", [[Text(printable(name))] for name in document["artifacts"]]),
        ("history", list(_history(document["history"], is_full=is_full))),
    ):
        if rows:
            console.print()
            console.print(Text(title, "bold"))
            console.print(_grid(rows))
    console.print()
    for sentence in advice:
        console.print(Text(f"-> {sentence}"), soft_wrap=True)


def _facts(task: Task, now: datetime) -> Iterator[tuple[str, Text]]:
    yield "id", Text(printable(task.id))
    yield "tool", Text(format_tool(task.tool))
    state = format_task_progress(task, max_length=2_000)
    yield "status", results.format_status(task).append(f": {state}" if state else "", "default not bold")
    if task.state is not None:
        yield "state", Text(f"{printable(task.state.name)}, since {format_moment(task.state.since, now)}")
    if task.subject is not None:
        yield "subject", Text(printable(task.subject))
    yield "namespace", Text(printable(task.namespace))
    yield "owner", Text(format_owner(task.owner))
    if task.parent_id is not None:
        yield "parent", Text(printable(task.parent_id))
    yield "attempt", Text(f"{task.attempt_number}" + (f", {task.failures} failed" if task.failures else ""))
    if task.attempt is not None:
        lease = task.attempt.lease
        verb = "expires" if lease.expires_at > now else "expired"
        yield "runs in", Text(f"{printable(lease.holder)}, its lease {verb} {format_age(lease.expires_at, now)}")
    for name in ("created_at", "updated_at", "due_at", "deadline_at", "finished_at", "expires_at"):
        moment = getattr(task, name)
        if moment is not None:
            yield name.removesuffix("_at"), Text(format_moment(moment, now))
    if task.finished_at is not None:
        yield "took", Text(format_duration((task.finished_at - task.created_at).total_seconds()))


def _question(item: dict[str, Any], *, is_full: bool) -> list[Text]:
    is_open = item["answered_at"] is None
    state = Text("open", "yellow") if is_open else Text("answered", "green")
    text = _payload(item, "request" if is_open else "answer", is_full=is_full) or Text()
    return [Text(printable(item["key"])), Text(item["kind"]), state, text]


def _step(item: dict[str, Any], *, is_full: bool) -> list[Text]:
    name = printable(item["name"]) + (f" ({item['occurrence']})" if item["occurrence"] else "")
    return [Text(name), Text(_clock_time(item["finished_at"])), _payload(item, "result", is_full=is_full) or Text()]


def _history(entries: list[dict[str, Any]], *, is_full: bool) -> Iterator[list[Text]]:
    omitted = 0 if is_full else max(0, len(entries) - HISTORY_SHOWN)
    for entry in entries:
        if omitted and 1 < entry["seq"] <= omitted + 1:
            if entry["seq"] == omitted + 1:
                yield [Text(""), Text(f"{omitted} more: --full shows them", "dim")]
            continue
        phases = (
            entry["after"] if entry["before"] in (None, entry["after"]) else f"{entry['before']} -> {entry['after']}"
        )
        yield [
            Text(_clock_time(entry["at"])),
            Text(entry["event"], "bold"),
            Text(phases),
            *_actor_and_note(entry, is_full=is_full),
        ]


def _actor_and_note(entry: dict[str, Any], *, is_full: bool) -> Iterator[Text]:
    yield Text(printable(entry["actor"]))
    note = Text(printable(entry["note"] or ""))
    detail = _format_traceback(entry, is_full=is_full)
    if detail is not None:
        yield note.append("\n" if note else "").append_text(detail)
        return
    detail = _payload(entry, "detail", is_full=is_full)
    yield note if detail is None else note.append(" " if note else "").append_text(detail)


def _format_traceback(entry: dict[str, Any], *, is_full: bool) -> Text | None:
    """Format a traceback line by line. Its end is the most useful: the tool's line that raised, and the error."""
    detail = entry["detail"]
    if not isinstance(detail, dict) or not isinstance(cast("dict[str, Any]", detail).get("traceback"), str):
        return None
    lines = [line for line in cast("dict[str, str]", detail)["traceback"].splitlines() if line.strip()]
    if is_full:
        return Text("\n".join(map(_escape_line, lines)))
    excerpt = [line for line in lines if set(line) - set(" ^~")][-LAST_LINES:]
    note = ["(--full shows all of it)"] if len(excerpt) < len(lines) else []
    return Text("\n".join([*(_escape_line(line[:PREVIEW_LENGTH]) for line in excerpt), *note]))


def _payload(holder: dict[str, Any], name: str, *, is_full: bool) -> Text | None:
    """Format a payload; None if there is none."""
    reason = holder["unreadable"].get(name)
    if reason is not None:
        return Text(f"({reason}: not readable here)", "dim")
    value = holder[name]
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2 if is_full else None)
    if is_full:
        return Text("\n".join(map(_escape_line, text.splitlines())))
    return Text(printable(clip_text(text, PREVIEW_LENGTH)))


def _escape_line(line: str) -> str:
    """Escape a line, but keep its indentation."""
    return line[: len(line) - len(line.lstrip(" "))] + printable(line)


def _clock_time(moment: str) -> str:
    """Format a moment that is in JSON's format."""
    return f"{moment[:10]} {moment[11:23]}"


def _grid(rows: list[list[Text]]) -> Table:
    table = Table.grid(padding=(0, 2))
    # Times and other short texts in the first column are not folded.
    table.add_column(
        no_wrap=len(rows[0]) > 1 and max(len(row[0]) for row in rows) <= MAX_UNFOLDED_LENGTH, overflow="fold"
    )
    for _ in range(max(map(len, rows)) - 2):
        table.add_column(overflow="fold")
    table.add_column(overflow="fold", ratio=1)
    for row in rows:
        table.add_row(*row)
    return table


def advise(task: Task, open_keys: list[str], now: datetime, store: str | None) -> list[str]:
    """Return advice on what to do next, or what to expect. Commands contain --store if it was given."""
    sentences = [_advise_by_phase(task, now, () if store is None else ("--store", redact_store_url(store)))]
    if open_keys and not task.is_terminal:
        keys = ", ".join(map(printable, open_keys))
        sentences.insert(0, f"it waits for its caller to answer {keys}, and resumes then")
    return [sentence for sentence in sentences if sentence]


def _advise_by_phase(task: Task, now: datetime, store_option: tuple[str, ...]) -> str:
    if task.deadline_at is not None and task.is_overdue(now) and task.deadline_at <= now:
        return f"it is past its deadline: a running server ends it soon. {_doctor(store_option)} shows whether one runs"
    match task.phase:
        case Phase.QUEUED:
            worker = f"a server of {printable(task.namespace)!r} that has {format_tool(task.tool)}"
            return f"it waits for {worker}: {_doctor(store_option)} shows whether one runs"
        case Phase.RUNNING:
            return _advise_running(task, now, store_option)
        case Phase.PARKED:
            return _advise_parked(task, now, store_option)
        case Phase.PAUSED:
            return f"{format_command('tasks resume', task.id, *store_option)} resumes it"
        case Phase.COMPLETED:
            return _advise_completed(task, now, store_option)
        case Phase.FAILED | Phase.CANCELLED:
            return f"{format_command('tasks retry', task.id, *store_option)} runs it again, as a new task"


def _advise_parked(task: Task, now: datetime, store_option: tuple[str, ...]) -> str:
    wake_up = "" if task.due_at is None else f"it resumes {format_age(task.due_at, now)}"
    if task.open_inputs:
        return wake_up
    if task.state is None:
        return wake_up or "it waits for a task that it has started"
    # The action of its state may have started a task, too.
    wait = f"{wake_up}, or at a transition" if wake_up else "it waits for a transition"
    return f"{wait}: {format_command('workflow state', task.id, *store_option)} shows its transitions"


def _advise_running(task: Task, now: datetime, store_option: tuple[str, ...]) -> str:
    lease = None if task.attempt is None else task.attempt.lease
    if lease is not None and lease.expires_at <= now:
        late = format_duration((now - lease.expires_at).total_seconds())
        return f"its lease expired {late} ago: a running server requeues it, so check that one runs"
    watch, cancel = (format_command(f"tasks {command}", task.id, *store_option) for command in ("watch", "cancel"))
    return f"{watch} shows its progress; {cancel} cancels it"


def _advise_completed(task: Task, now: datetime, store_option: tuple[str, ...]) -> str:
    if task.is_error:
        retry = format_command("tasks retry", task.id, *store_option)
        return f"it reports an error: {retry} runs it again, as a new task"
    if task.expires_at is None:
        return ""
    return f"its result is stored for another {format_duration((task.expires_at - now).total_seconds())}"


def _doctor(store_option: tuple[str, ...]) -> str:
    return shlex.join(["raincheck", "doctor", *store_option])


EPILOG = """
Examples:

\b
  raincheck tasks show 019b76da40a1
  raincheck tasks show 019b76da40a1 --full --store /var/lib/tasks.db

A prefix of an id is enough if no other id has it. Exit codes: 0 success; 1 there is no such task; 2 the store can't be
used.
"""


@store_command
async def show(
    clock: Clock,
    task_id: Annotated[str, typer.Argument(metavar="ID", help="The task's id, or a prefix of it.")],
    store: StoreOption = None,
    full: Annotated[bool, typer.Option("--full", help="Print arguments, results and errors in full.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show everything about a task.

    Prints its data, its history, and what to do next.
    """
    async with open_operator_store(store, clock) as opened:
        now = clock.now()
        task = await find_task(opened, task_id, now=now)
        document: dict[str, Any] = await load_task_document(opened, task, now=now)
    open_keys = [item["key"] for item in document["inputs"] if item["answered_at"] is None]
    advice = advise(task, open_keys, now, store)
    if as_json:
        typer.echo(json.dumps({**document, "advice": advice}, indent=2))
    else:
        print_task(task, document, advice, now=now, is_full=full)
