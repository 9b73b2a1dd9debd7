"""The tasks that a task starts: children while it works, and one that follows when it completes.

What a child asks, asked by its parent: whoever called the parent knows of no child.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from raincheck.core.change import Creation
from raincheck.core.commands import Note
from raincheck.core.limits import Quota
from raincheck.core.owner import Scope
from raincheck.core.payload import Json, Payload, encode
from raincheck.core.records import InputRequest, TaskId, View
from raincheck.engine.execution.api import Ended
from raincheck.engine.execution.checkpoints import RELAYED
from raincheck.engine.execution.session import Hold
from raincheck.engine.inputs import refusal
from raincheck.engine.submit import Request, create_task
from raincheck.engine.tool import TaskTool
from raincheck.engine.toolbox import Toolbox
from raincheck.errors import IllegalTransition, InvalidValue, ProtocolError, TaskNotFound, TooLarge
from raincheck.stores.commit import answer

LONG_AGO = datetime(1970, 1, 2, tzinfo=UTC)
"""A child is kept while its parent lives, even past its time. Read as of then, it has not expired yet."""


@dataclass(frozen=True, slots=True)
class _Successor:
    task_id: TaskId
    tool: TaskTool
    arguments: Mapping[str, Json]
    result_as: str


class Offspring:
    """What one attempt may start, and how it learns what came of it."""

    def __init__(self, hold: Hold, toolbox: Toolbox, quota: Quota) -> None:
        self.quota = quota
        self._hold = hold
        self._toolbox = toolbox
        self._successor: _Successor | None = None

    async def child(self, tool: str, arguments: Mapping[str, Json], count: int) -> Creation:
        """A new child, if it is within bounds: `count` are there already.

        Raises:
            UnknownTool, InvalidValue: the tool, or its arguments, can't be had.
            TooLarge: there are too many children, or too many generations.
        """
        task, limits = self._hold.task, self._hold.means.limits
        if count >= limits.children:
            raise TooLarge(f"task {task.id!r}", count + 1, limits.children, "children")
        generations = await self._generations()
        if generations > limits.depth:
            raise TooLarge(f"the family of task {task.id!r}", generations, limits.depth, "generations of children")
        return self._create(self._toolbox.get(tool), arguments, parent_id=task.id)

    def name_successor(self, tool: str, arguments: Mapping[str, Json], result_as: str) -> str:
        """Remember what is to start when the task completes.

        Raises:
            UnknownTool, InvalidValue: the tool, or its arguments, can't be had, or there is one already.
        """
        if self._successor is not None:
            raise InvalidValue(f"task {self._hold.task.id!r} names what follows it twice: let that one name the next")
        if result_as in arguments:
            raise InvalidValue(
                f"argument {result_as!r} of {tool!r} is to be the result: leave it out, or set result_as"
            )
        found = self._toolbox.get(tool)
        # Made now, so that whatever is wrong with it is told while the body can still do something about it.
        task_id = self._create(found, {**arguments, result_as: None}, checks=False).task.id
        self._successor = _Successor(task_id, found, arguments, result_as)
        return task_id

    def successor(self, result: Callable[[], Json]) -> tuple[Creation, ...]:
        """The task that starts now that there is a result. It takes this one's place, so no quota is counted."""
        one = self._successor
        if one is None:
            return ()
        arguments = {**one.arguments, one.result_as: result()}
        # Not looked at as a whole: a result that does not fit is the next one's trouble, not a reason to lose this.
        return (self._create(one.tool, arguments, task_id=one.task_id, checks=False),)

    async def look_at(self, child_id: str) -> View:
        """A child as it is.

        Raises:
            InvalidValue: it is not a child of this task.
        """
        view: View | None = None
        with suppress(TaskNotFound):
            scope = Scope.within(self._hold.task.namespace)
            view = await self._hold.means.store.view(TaskId(child_id), scope, now=LONG_AGO)
        if view is None or view.task.parent_id != self._hold.task.id:
            raise InvalidValue(f"task {child_id!r} is no child of task {self._hold.task.id!r}")
        return view

    def outcome(self, view: View) -> Ended:
        """How a child ended."""
        ended, tool = Ended.of(view), self._toolbox.find(view.task.tool)
        if tool is None or ended.phase != "completed" or ended.is_error:
            return ended
        return replace(ended, outcome=tool.value_of(ended.outcome))

    async def _generations(self) -> int:
        """How many generations there would be with another child, counted from the first that is still known."""
        count, ancestor = 1, self._hold.task.parent_id
        while ancestor is not None:
            count += 1
            scope = Scope.within(self._hold.task.namespace)
            try:
                ancestor = (await self._hold.means.store.load(ancestor, scope, now=LONG_AGO)).parent_id
            except TaskNotFound:
                break
        return count

    def _create(
        self,
        tool: TaskTool,
        arguments: Mapping[str, Json],
        *,
        parent_id: TaskId | None = None,
        task_id: TaskId | None = None,
        checks: bool = True,
    ) -> Creation:
        task, means = self._hold.task, self._hold.means
        request = Request(task.namespace, task.owner, self._hold.journal.caller, parent_id, actor=f"task {task.id}")
        return create_task(
            tool,
            arguments,
            request,
            now=means.clock.now(),
            limits=means.limits,
            task_id=task_id,
            checks=checks,
        )


TAIL = 12
"""Characters of a child's id that tell it from the others of its parent."""

WITHDRAWN = -32000


class Relaying:
    """Asks for the children of one attempt's task, and hands them the answers."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold
        self._asked = {question.key for question in hold.journal.inputs}

    async def relay(self, child: View) -> None:
        """Ask what the child asks and nobody was asked yet, and answer it what was answered."""
        for question in child.inputs:
            key = _key(child.task.id, question.key)
            given = self._hold.journal.answer_to(key)
            if given is not None:
                await self._answer(child.task.id, question.key, given)
            elif key not in self._asked and self._hold.task.open_inputs < self._hold.means.limits.open_inputs:
                self._asked.add(key)
                now = self._hold.means.clock.now()
                asked = InputRequest(key, question.kind, question.request, now, self._hold.fence)
                await self._hold.note(Note(self._hold.fence, asked=(asked,)))

    async def withdraw(self, child_id: TaskId) -> None:
        """The child has ended: nobody need answer any more what it asked."""
        own = _key(child_id, "")
        for key in [one for one in self._asked if one.startswith(own) and self._hold.journal.answer_to(one) is None]:
            await self.take_back(key)
            self._asked.discard(key)

    async def take_back(self, key: str) -> None:
        """Close a question of this task that nobody need answer any more."""
        gone = encode(refusal(ProtocolError("nobody waits for this answer any more", WITHDRAWN)))
        await self._answer(self._hold.task.id, key, gone)

    async def _answer(self, task_id: TaskId, key: str, given: Payload) -> None:
        means, scope = self._hold.means, Scope.within(self._hold.task.namespace)
        actor = f"task {self._hold.task.id}"
        try:
            await answer(means.store, task_id, scope, {key: given}, actor=actor, now=means.clock.now())
        except (IllegalTransition, TaskNotFound):
            # It has just ended, and needs no answer.
            return


def _key(child_id: TaskId, key: str) -> str:
    return f"{RELAYED}{child_id[-TAIL:]}:{key}"
