"""What earlier attempts at a pipeline have left, by step: the names of checkpoints begin with that of their step."""

import re
from collections.abc import Collection, Generator
from contextlib import contextmanager

from raincheck.core.content import Step as Checkpoint
from raincheck.core.payload import decode
from raincheck.engine.context import TaskContext
from raincheck.engine.process_desk import local_desk

STILL_READING = 1.0
"""Seconds in which a step ends that finds all of it on record, while there is more on record that was not asked for."""

ALL_READ = 0.2
"""Likewise, when all was asked for."""


class Earlier:
    """The attempts before this one."""

    def __init__(self, task: TaskContext) -> None:
        self._desk = local_desk(task)

    @property
    def steps(self) -> set[str]:
        """Those that had begun, and had come to something."""
        return {_step_of(one) for one in self._desk.hold.journal.steps}

    @property
    def patience(self) -> float:
        """Seconds after which a step that has not ended yet had not ended then."""
        return STILL_READING if self._desk.checkpoints.is_replaying else ALL_READ

    @contextmanager
    def catching_up(self) -> Generator[None]:
        """While this lasts, the attempt is not parked, although its steps may all be waiting."""
        self._desk.patience.begin_work("catching up", 0)
        try:
            yield
        finally:
            self._desk.patience.end_work("catching up", 0)

    async def cancel_children(self, steps: Collection[str]) -> None:
        """Cancel the children of these steps, which nobody waits for any more."""
        for one in self._desk.hold.journal.steps:
            if one.fingerprint.startswith("spawn:") and _step_of(one) in steps:
                await self._desk.cancel_child(str(decode(one.result)))


def _step_of(checkpoint: Checkpoint) -> str:
    """The step that a checkpoint belongs to: `each` of `each[3] try 2`, and of `sleep each[3] backoff`."""
    kind = checkpoint.fingerprint.partition(":")[0]
    name = checkpoint.name if kind == "step" else checkpoint.name.removeprefix(f"{kind} ")
    return re.split(r"[\[ ]", name, maxsplit=1)[0]
