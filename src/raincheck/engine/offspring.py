"""The tasks that a task starts: children while it works, and one that follows when it completes."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from raincheck.core.change import Creation
from raincheck.core.content import View
from raincheck.core.limits import Quota
from raincheck.core.owner import Scope
from raincheck.core.payload import Json
from raincheck.core.records import TaskId
from raincheck.engine.creation import Request, create_task
from raincheck.engine.desk import Ended
from raincheck.engine.hold import Hold
from raincheck.engine.toolbox import Toolbox
from raincheck.engine.tools import TaskTool
from raincheck.errors import InvalidValue, TaskNotFound, TooLarge

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
