"""What earlier attempts at a pipeline have left, by step: the names of checkpoints begin with that of their step."""

import re
from collections.abc import Collection
from datetime import UTC, datetime

from raincheck.core.content import Step as Checkpoint
from raincheck.core.payload import Json, decode
from raincheck.engine.context import TaskContext
from raincheck.engine.process_desk import local_desk
from raincheck.workflows.doing import Doing, Tried
from raincheck.workflows.expressions import Scope
from raincheck.workflows.pipeline_step import Ended, Step

LATER = datetime.max.replace(tzinfo=UTC)


class Earlier:
    """The attempts before this one."""

    def __init__(self, task: TaskContext) -> None:
        self._desk = local_desk(task)
        journal = self._desk.hold.journal
        self._recorded = _TriesOnRecord(
            {one.name: one for one in journal.steps if _kind_of(one) == "step"}, journal.artifacts
        )
        self._moments: dict[str, datetime] = {}
        for one in journal.steps:
            step = _step_of(one)
            self._moments[step] = max(one.finished_at, self._moments.get(step, one.finished_at))

    @property
    def steps(self) -> Collection[str]:
        """Those that had begun, and had come to something."""
        return self._moments.keys()

    def moment_of(self, step: str) -> datetime:
        """When a step had last come to something, as far as earlier attempts know: this one comes after them."""
        return self._moments.get(step, LATER)

    async def end_of(self, step: Step, scope: Scope) -> Ended | None:
        """How a step ended; None if it had not. Told from records alone: nothing is done, or waited for."""
        try:
            return await step.run(self._recorded, scope)
        except _NotOnRecord:
            return None

    def leave(self) -> None:
        """Nothing else that they recorded is looked up."""
        self._desk.checkpoints.leave_rest()

    async def cancel_children(self, steps: Collection[str]) -> None:
        """Cancel the children of these steps, which nobody waits for any more."""
        for one in self._desk.hold.journal.steps:
            if _kind_of(one) == "spawn" and _step_of(one) in steps:
                await self._desk.cancel_child(str(decode(one.result)))


class _NotOnRecord(Exception):
    pass


class _TriesOnRecord:
    """Tries that earlier attempts have made."""

    def __init__(self, found: dict[str, Checkpoint], artifacts: Collection[str]) -> None:
        self._found = found
        self._artifacts = artifacts

    async def outcome(self, doing: Doing, name: str, scope: Scope) -> Tried:  # noqa: ARG002 - as others take it
        if name not in self._found:
            raise _NotOnRecord
        return Tried.of(decode(self._found[name].result))

    async def pause(self, seconds: float, name: str) -> None:
        """If the next try is on record, the time before it has passed."""

    async def keep(self, artifact: str | None, result: Json) -> None:  # noqa: ARG002 - likewise
        if artifact is not None and artifact not in self._artifacts:
            raise _NotOnRecord


def _kind_of(checkpoint: Checkpoint) -> str:
    return checkpoint.fingerprint.partition(":")[0]


def _step_of(checkpoint: Checkpoint) -> str:
    """The step that a checkpoint belongs to: `each` of `each[3] try 2`, and of `sleep each[3] backoff`."""
    kind = _kind_of(checkpoint)
    name = checkpoint.name if kind == "step" else checkpoint.name.removeprefix(f"{kind} ")
    return re.split(r"[\[ ]", name, maxsplit=1)[0]
