"""What a child asks, asked by its parent: whoever called the parent knows of no child."""

from raincheck.core.commands import Note
from raincheck.core.content import InputRequest, View
from raincheck.core.owner import Scope
from raincheck.core.payload import Payload, encode
from raincheck.core.records import TaskId
from raincheck.engine.answers import refusal
from raincheck.engine.checkpoints import RELAYED
from raincheck.engine.hold import Hold
from raincheck.errors import IllegalTransition, ProtocolError, TaskNotFound
from raincheck.stores.apply import answer

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
