"""Where the tries of a step come from: from doing them, or from what is on record of them."""

from typing import TYPE_CHECKING, Protocol

from raincheck.core.payload import Json
from raincheck.engine.context import TaskContext
from raincheck.errors import TooLarge
from raincheck.workflows.action import ActionFailed, Occasion
from raincheck.workflows.expressions import Scope

if TYPE_CHECKING:
    from raincheck.workflows.doing import Doing, Tried


class Tries(Protocol):
    """What a step needs to come to its end."""

    async def outcome(self, doing: "Doing", name: str, scope: Scope) -> "Tried":
        """What came of the try of this name."""
        ...

    async def pause(self, seconds: float, name: str) -> None:
        """Let time pass before the next one."""
        ...

    async def keep(self, artifact: str | None, result: Json) -> None:
        """Keep the result under this name, if there is one.

        Raises:
            ActionFailed: it is too large.
        """
        ...


class TriesMade:
    """Tries as they are made by a task, each once."""

    def __init__(self, task: TaskContext) -> None:
        self._task = task

    async def outcome(self, doing: "Doing", name: str, scope: Scope) -> "Tried":
        return await doing.try_once(Occasion(self._task, name, scope))

    async def pause(self, seconds: float, name: str) -> None:
        await self._task.sleep(seconds, name=name)

    async def keep(self, artifact: str | None, result: Json) -> None:
        if artifact is None:
            return
        try:
            await self._task.artifact(artifact, result)
        except TooLarge as error:
            raise ActionFailed("too-large", str(error)) from error
