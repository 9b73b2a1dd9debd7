"""What an operator can do about a task, as it is."""

import shlex
from datetime import datetime

from raincheck.cli.databases import typed_store
from raincheck.cli.plain import printable, told_age, told_tool, typed
from raincheck.core.lifecycle import Phase
from raincheck.core.records import Task
from raincheck.wire.spoken import in_words


def advise(task: Task, open_keys: list[str], now: datetime, store: str | None) -> list[str]:
    """What to do next, or what to expect: a sentence or two. The store is named again, if it was."""
    said = [_about(task, now, () if store is None else ("--store", typed_store(store)))]
    if open_keys and not task.is_terminal:
        said.insert(
            0, f"its caller is asked for {', '.join(map(printable, open_keys))}, and it goes on when that is answered"
        )
    return [one for one in said if one]


def _about(task: Task, now: datetime, named: tuple[str, ...]) -> str:
    if task.deadline_at is not None and task.is_overdue(now) and task.deadline_at <= now:
        return f"it is past its deadline: the next server that looks ends it, so see that one runs ({_doctor(named)})"
    match task.phase:
        case Phase.QUEUED:
            who = f"a server of {printable(task.namespace)!r} that has {told_tool(task.tool)}"
            return f"it waits for {who}: {_doctor(named)} says whether one has been seen"
        case Phase.RUNNING:
            return _about_running(task, now, named)
        case Phase.PARKED:
            return _about_parked(task, now, named)
        case Phase.PAUSED:
            return f"{typed('tasks resume', task.id, *named)} lets it go on"
        case Phase.COMPLETED:
            return _kept(task, now, named)
        case Phase.FAILED | Phase.CANCELLED:
            return f"{typed('tasks retry', task.id, *named)} runs the same again, as a new task"


def _about_parked(task: Task, now: datetime, named: tuple[str, ...]) -> str:
    by_itself = "" if task.due_at is None else f"it goes on by itself {told_age(task.due_at, now)}"
    if task.open_inputs:
        return by_itself
    if task.state is None:
        return by_itself or "it waits for a task that it has started"
    # Its action may have started one, too.
    waits = f"{by_itself}, or by a transition" if by_itself else "it waits for a transition"
    return f"{waits}: {typed('workflow state', task.id, *named)} shows which there are"


def _about_running(task: Task, now: datetime, named: tuple[str, ...]) -> str:
    lease = None if task.attempt is None else task.attempt.lease
    if lease is not None and lease.expires_at <= now:
        late = in_words((now - lease.expires_at).total_seconds())
        return f"its lease ran out {late} ago: any server of the store takes it back, so see that one runs"
    watch, cancel = (typed(f"tasks {command}", task.id, *named) for command in ("watch", "cancel"))
    return f"{watch} shows how it goes on; {cancel} stops it"


def _kept(task: Task, now: datetime, named: tuple[str, ...]) -> str:
    kept = (
        "" if task.expires_at is None else f"its result is kept for {in_words((task.expires_at - now).total_seconds())}"
    )
    if not task.is_error:
        return kept
    return f"it reports an error: {typed('tasks retry', task.id, *named)} runs the same again, as a new task"


def _doctor(named: tuple[str, ...]) -> str:
    return shlex.join(["raincheck", "doctor", *named])
