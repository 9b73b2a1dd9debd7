"""What new tasks and changes become in the tables, inside of a write transaction."""

import json
import sqlite3
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial

from raincheck.core.change import Change, Creation
from raincheck.core.limits import Quota
from raincheck.core.payload import Payload
from raincheck.core.records import Task, TaskId
from raincheck.core.turn import enters_queue
from raincheck.errors import AlreadyRecorded, StaleChange
from raincheck.stores import rows
from raincheck.stores.sqlite.errors import is_duplicate
from raincheck.stores.sqlite.queries import QUERIES

_NEVER = (1 << 63) - 1
"""After all that was ever created."""


class Tables:
    """The tables, as they are within a transaction. It remembers which tasks it touched, for those who listen."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.touched: list[TaskId] = []

    def find(self, task_id: TaskId) -> Task | None:
        row = self._connection.execute(QUERIES["find_task"], (task_id,)).fetchone()
        return None if row is None else rows.task_of(row)

    def live_children(self, parent_id: TaskId) -> list[Task]:
        return list(map(rows.task_of, self._connection.execute(QUERIES["live_children"], (parent_id,)).fetchall()))

    def insert(self, creation: Creation, quota: Quota, now: datetime, begun: Change | None = None) -> None:
        """Begin a new task, if its owner may have one more.

        One whose attempt is begun with it is written as it is then, in one go: the queue's indexes need not see it.
        """
        new = creation.task
        self._check_quota(new, quota, now)
        turn, others_wait = self._next_turn(new) if enters_queue(None, new) else (0, False)
        row = rows.row_of_creation(creation) | {"turn": turn}
        if begun is not None:
            row |= rows.row_of_task(begun.after)
        pk = self._insert_once("insert_task", row, lambda: AlreadyRecorded(new.id)).lastrowid
        assert pk is not None  # noqa: S101 - an insert has a row
        for entry in (creation.entry, None if begun is None else begun.entry):
            if entry is not None:
                self._connection.execute(QUERIES["insert_entry"], rows.row_of_entry(pk, entry))
        self._put_payload(pk, "arguments", creation.arguments)
        self._put_payload(pk, "caller", creation.caller)
        if begun is not None and others_wait:
            # How far a line was served matters only to those who wait in it.
            self.advance_lines([new.id])
        self.touched.append(new.id)

    def write(self, change: Change) -> None:
        """Do what the change says, if it still holds, and begin the tasks that it spawns."""
        pk = self._update(change)
        if change.entry is not None:
            self._connection.execute(QUERIES["insert_entry"], rows.row_of_entry(pk, change.entry))
        self._put_payload(pk, "outcome", change.outcome)
        self._put_payload(pk, "variables", change.variables)
        if change.leaves_state:
            self._connection.execute(QUERIES["forget_steps"], (pk,))
            self._connection.execute(QUERIES["forget_answered"], (pk,))
        if change.steps:
            self._write_steps(pk, change)
        if change.inputs:
            self._write_inputs(pk, change)
        for artifact in change.artifacts:
            row = (pk, artifact.name, artifact.content, rows.to_micros(artifact.kept_at))
            self._connection.execute(QUERIES["put_artifact"], row)
        self.touched.append(change.after.id)
        for creation in change.spawned:
            self.insert(creation, change.quota, creation.task.created_at)

    def advance_lines(self, taken: Iterable[TaskId]) -> None:
        """Remember how far a claim that took these tasks served their lines."""
        self._connection.execute(QUERIES["advance_lines"], (json.dumps([*taken]),))

    def _update(self, change: Change) -> int:
        parameters = rows.row_of_task(change.after)
        parameters["expected_version"] = change.before.version
        parameters["lease_seen"] = None if change.lease_seen is None else rows.to_micros(change.lease_seen)
        # If it holds, the stored task has the phase from before.
        enters = enters_queue(change.before, change.after)
        parameters["turn"] = self._next_turn(change.after)[0] if enters else None
        updated = self._connection.execute(QUERIES["update_task"], parameters).fetchall()
        if not updated:
            raise StaleChange(change.before.id)
        return updated[0][0]

    def _next_turn(self, new: Task) -> tuple[int, bool]:
        """The turn of a task, and whether others wait in its line."""
        whose = {"namespace": new.namespace, "owner": new.owner.key, "priority": new.priority, "fence": new.fence}
        tool = {"tool": new.tool.name, "tool_version": new.tool.version}
        return self._connection.execute(QUERIES["next_turn"], whose | tool).fetchone()

    def _put_payload(self, pk: int, kind: str, body: Payload | None) -> None:
        if body is not None:
            self._connection.execute(QUERIES["put_payload"], (pk, kind, body))

    def _write_steps(self, pk: int, change: Change) -> None:
        for step in change.steps:
            finished_at = rows.to_micros(step.finished_at)
            row = (pk, step.name, step.occurrence, step.fingerprint, step.result, step.attempt, finished_at)
            duplicate = partial(AlreadyRecorded.step, change.before.id, step.name, step.occurrence)
            self._insert_once("insert_step", row, duplicate)

    def _write_inputs(self, pk: int, change: Change) -> None:
        for question in change.inputs:
            if question.answered_at is not None:
                answer = (question.answer, rows.to_micros(question.answered_at), pk, question.key)
                self._connection.execute(QUERIES["answer_input"], answer)
                continue
            asked_at = rows.to_micros(question.asked_at)
            row = (pk, question.key, str(question.kind), question.request, asked_at, question.attempt)
            duplicate = partial(AlreadyRecorded.question, change.before.id, question.key)
            self._insert_once("insert_input", row, duplicate)

    def _insert_once(
        self, query: str, row: rows.Row | dict[str, rows.Value], duplicate: Callable[[], AlreadyRecorded]
    ) -> sqlite3.Cursor:
        try:
            return self._connection.execute(QUERIES[query], row)
        except sqlite3.IntegrityError as error:
            if is_duplicate(error):
                raise duplicate() from error
            raise

    def _check_quota(self, new: Task, quota: Quota, now: datetime) -> None:
        if quota.live is None and quota.created is None:
            return
        bounds = {
            "most_live": quota.live or 0,
            "most_created": quota.created or 1,
            "since": _NEVER if quota.created is None else rows.to_micros(now - quota.window),
        }
        whose = {"namespace": new.namespace, "owner": new.owner.key}
        live, latest = self._connection.execute(QUERIES["count_of_owner"], whose | bounds).fetchone()
        quota.check_live(live)
        if quota.created is not None:
            quota.check_created(None if latest is None else rows.to_moment(latest), now)
