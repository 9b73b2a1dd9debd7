"""The tasks that a task starts: children while it works, and a successor when it completes.

The input requests of children are repeated as requests of their parent, whose caller does not know the children.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from raincheck.core.change import Creation
from raincheck.core.commands import Note
from raincheck.core.records import InputRequest, TaskId, View
from raincheck.core.values import Json, Payload, encode
from raincheck.engine.execution.checkpoints import CHILD_KEY_PREFIX
from raincheck.engine.execution.session import AttemptSession
from raincheck.engine.inputs import TaskOutcome, error_answer
from raincheck.engine.tool import TaskTool, create_task
from raincheck.errors import IllegalTransition, InvalidValue, ProtocolError, TaskNotFound, TooLarge
from raincheck.stores.commit import answer

ID_SUFFIX_LENGTH = 12
"""Characters of a child's id that distinguish it from its parent's other children."""

WITHDRAWN_CODE = -32000

LONG_AGO = datetime(1970, 1, 2, tzinfo=UTC)
"""Children are stored while their parent lives, even past their expiry. As of this time, they have not expired."""


@dataclass(frozen=True, slots=True)
class _Successor:
    task_id: TaskId
    tool: TaskTool
    arguments: Mapping[str, Json]
    result_as: str


class ChildTasks:
    """The children and the successor of one attempt's task."""

    def __init__(self, session: AttemptSession) -> None:
        self._session = session
        self._deps = session.deps
        self._relayed_keys = {input_request.key for input_request in session.journal.inputs}
        self._successor: _Successor | None = None

    async def create_child(self, tool: str, arguments: Mapping[str, Json], count: int) -> Creation:
        """Create a child, if it is within the limits: `count` already exist.

        Raises:
            UnknownTool, InvalidValue: the tool does not exist, or its arguments are invalid.
            TooLarge: there are too many children, or too many generations.
        """
        task, limits = self._session.task, self._deps.settings.limits
        if count >= limits.children:
            raise TooLarge(f"task {task.id!r}", count + 1, limits.children, "children")
        generations = await self._generations()
        if generations > limits.depth:
            raise TooLarge(f"the family of task {task.id!r}", generations, limits.depth, "generations of children")
        return self._create(self._deps.toolbox.get(tool), arguments, parent_id=task.id)

    def set_successor(self, tool: str, arguments: Mapping[str, Json], result_as: str) -> str:
        """Set the task to start when this one completes.

        Raises:
            UnknownTool, InvalidValue: the tool does not exist or its arguments are invalid, or there is already a
                successor.
        """
        if self._successor is not None:
            raise InvalidValue(
                f"task {self._session.task.id!r} already has a successor: let that task set its own successor"
            )
        if result_as in arguments:
            raise InvalidValue(
                f"argument {result_as!r} of {tool!r} is reserved for the result: leave it out, or set result_as"
            )
        found = self._deps.toolbox.get(tool)
        # Created now, so that errors are raised while the body can still handle them.
        task_id = self._create(found, {**arguments, result_as: None}, checks=False).task.id
        self._successor = _Successor(task_id, found, arguments, result_as)
        return task_id

    def create_successor(self, result: Callable[[], Json]) -> tuple[Creation, ...]:
        """Create the successor with this task's result. It takes this task's place, so no quota is counted."""
        successor = self._successor
        if successor is None:
            return ()
        arguments = {**successor.arguments, successor.result_as: result()}
        # Not validated: an invalid result fails the successor, and must not lose this task's result.
        return (self._create(successor.tool, arguments, task_id=successor.task_id, checks=False),)

    async def view_child(self, child_id: str) -> View:
        """Return the current view of a child.

        Raises:
            InvalidValue: the task is not a child of this task.
        """
        view: View | None = None
        with suppress(TaskNotFound):
            view = await self._deps.store.view(TaskId(child_id), self._deps.scope, now=LONG_AGO)
        if view is None or view.task.parent_id != self._session.task.id:
            raise InvalidValue(f"task {child_id!r} is not a child of task {self._session.task.id!r}")
        return view

    def child_outcome(self, view: View) -> TaskOutcome:
        """Return the outcome of a child."""
        outcome, tool = TaskOutcome.from_view(view), self._deps.toolbox.find(view.task.tool)
        if tool is None or outcome.phase != "completed" or outcome.is_error:
            return outcome
        return replace(outcome, outcome=tool.extract_value(outcome.outcome))

    async def _generations(self) -> int:
        """Count the generations with another child, from the first ancestor that still exists."""
        count, ancestor = 1, self._session.task.parent_id
        while ancestor is not None:
            count += 1
            try:
                ancestor = (await self._deps.store.load(ancestor, self._deps.scope, now=LONG_AGO)).parent_id
            except TaskNotFound:
                break
        return count

    async def relay(self, child: View) -> None:
        """Relay the child's new input requests, and pass the answers on to the child."""
        max_count = self._deps.settings.limits.open_inputs
        for input_request in child.inputs:
            key = _relay_key(child.task.id, input_request.key)
            answer_payload = self._session.journal.answer_to(key)
            if answer_payload is not None:
                await self._answer(child.task.id, input_request.key, answer_payload)
            elif key not in self._relayed_keys and self._session.task.open_inputs < max_count:
                self._relayed_keys.add(key)
                now = self._deps.clock.now()
                relayed = InputRequest(key, input_request.kind, input_request.request, now, self._session.fence)
                await self._session.write_from_body(Note(self._session.fence, input_requests=(relayed,)))

    async def withdraw(self, child_id: TaskId) -> None:
        """Withdraw the relayed requests of a child that has ended: they need no answer any more."""
        own = _relay_key(child_id, "")
        for key in [
            key for key in self._relayed_keys if key.startswith(own) and self._session.journal.answer_to(key) is None
        ]:
            await self.close_input(key)
            self._relayed_keys.discard(key)

    async def close_input(self, key: str) -> None:
        """Close an input request of this task that needs no answer any more."""
        payload = encode(error_answer(ProtocolError("this answer is no longer needed", WITHDRAWN_CODE)))
        await self._answer(self._session.task.id, key, payload)

    async def _answer(self, task_id: TaskId, key: str, answer_payload: Payload) -> None:
        deps, actor = self._deps, f"task {self._session.task.id}"
        try:
            payloads, now = {key: answer_payload}, deps.clock.now()
            await answer(deps.store, task_id, deps.scope, payloads, actor=actor, now=now, on_commit=deps.on_commit)
        except (IllegalTransition, TaskNotFound):
            # The task has just ended, and needs no answer.
            return

    def _create(
        self,
        tool: TaskTool,
        arguments: Mapping[str, Json],
        *,
        parent_id: TaskId | None = None,
        task_id: TaskId | None = None,
        checks: bool = True,
    ) -> Creation:
        task = self._session.task
        return create_task(
            self._deps,
            tool,
            arguments,
            task.owner,
            caller=self._session.journal.caller,
            parent_id=parent_id,
            task_id=task_id,
            actor=f"task {task.id}",
            validate=checks,
        )


def _relay_key(child_id: TaskId, key: str) -> str:
    return f"{CHILD_KEY_PREFIX}{child_id[-ID_SUFFIX_LENGTH:]}:{key}"
