"""One task that runs a pipeline.

Theory of operation
===================
The body is run from its beginning by every attempt at the task, so all that it does must come out the same each time.
It does: what a step does is recorded, and what is decided between steps depends on nothing but records, on the
arguments and on steps that must have ended before. So steps may end in another order after a crash, and nobody sees it.

One thing depends on the order: when a step fails, those that run beside it are stopped. That a pipeline has failed is
therefore written down before anything is stopped or undone. An attempt that finds it there looks up what had ended by
then, begins nothing else, and goes on with the undoing.

What earlier attempts at a pipeline have left, by step: the names of checkpoints begin with that of their step.
"""

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from raincheck.core.payload import Json, decode
from raincheck.core.records import Step as Checkpoint
from raincheck.engine.execution.context import TaskContext
from raincheck.engine.execution.local_api import local_desk
from raincheck.errors import ToolError
from raincheck.workflows.expressions.template import ExpressionFailed, Scope
from raincheck.workflows.pipelines.retry import Doing, Tried, TriesMade
from raincheck.workflows.pipelines.step import Ended, Step

if TYPE_CHECKING:
    from raincheck.workflows.pipelines.pipeline import Pipeline


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


FAILURE = "failure"
"""The variable that tells of the failure: which step it was, which had ended by then, in that order, which others had
begun, and the errors of those that could not be recorded."""


class PipelineFailed(ToolError):
    """A pipeline came to no result. The message is for its caller."""

    def __init__(self, step: str, message: str) -> None:
        super().__init__(message)
        self.step = step


class PipelineRun:
    """A pipeline on its way."""

    def __init__(
        self, pipeline: "Pipeline", task: TaskContext, arguments: Mapping[str, Json], restored: Mapping[str, Json]
    ) -> None:
        self._pipeline = pipeline
        self._plan = pipeline.plan
        self._task = task
        self._tries = TriesMade(task)
        self._input = arguments
        self._restored = restored
        self._ended: dict[str, Ended] = {
            step_id: Ended("completed", result) for step_id, result in restored.items() if step_id in self._plan.order
        }
        self._earlier = Earlier(task)
        self._begun: list[str] = []
        self._interrupted: Sequence[str] = ()

    async def to_its_end(self) -> Json:
        """The pipeline's output.

        Raises:
            PipelineFailed: a step has failed, or the output can't be worked out.
        """
        failure = cast("Mapping[str, Json] | None", self._task.variables.get(FAILURE))
        if failure is None:
            failing = await self._go(self._plan.order)
            if failing is None:
                return self._output()
            # Again, since something may have come to its end while it was stopped.
            failure = await self._write_down(failing)
        else:
            for step, error in cast("Mapping[str, Json]", failure.get("unrecorded", {})).items():
                self._ended[step] = Ended("failed", None, error, is_recorded=False)
            await self._go(cast("Sequence[str]", failure["ended"]), goes_on=True)
        self._interrupted = cast("Sequence[str]", failure.get("begun", ()))
        self._earlier.leave()
        # Those of this attempt went with their steps. An earlier one may have ended in between.
        await self._earlier.cancel_children(self._interrupted)
        undone = await self._undo([*cast("Sequence[str]", failure["ended"]), *self._interrupted])
        raise self._failed(str(failure["step"]), undone)

    async def _go(self, steps: Sequence[str], *, goes_on: bool = False) -> str | None:
        """Run these steps until they have ended, or until one fails for good: that one is returned."""
        waiting = [step for step in steps if step not in self._ended]
        running: dict[asyncio.Task[Ended], str] = {}
        try:
            while waiting or running:
                self._begin(waiting, running)
                await self._tell(running.values())
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                ended = self._collect(running)
                fatal = [step for step in ended if self._is_fatal(step)]
                if fatal and not goes_on:
                    await self._catch_up()
                    # Before others are stopped: a later attempt must not take that for a failure of theirs.
                    await self._write_down(fatal[0])
                    return fatal[0]
        finally:
            await _stop(running)
            # What came to its end nonetheless has done its work, and may have to be undone.
            self._collect({job: step for job, step in running.items() if not job.cancelled() and not job.exception()})
        return None

    async def _catch_up(self) -> None:
        """Take in what had ended in an earlier attempt, and just has not had its turn in this one."""
        # Steps without a record (skipped, or for no item) had ended if something after them has one.
        begun = [step for step in self._plan.order if step in self._earlier.steps]
        reached = {one for step in begun for one in (step, *self._plan.before[step])}
        known = -1
        while known != len(self._ended):
            known = len(self._ended)
            for step in self._plan.order:
                if step in reached and step not in self._ended and self._may_begin(step):
                    ended = await self._earlier.end_of(self._pipeline.steps[step], self._scope(step))
                    if ended is not None:
                        self._ended[step] = ended

    def _may_begin(self, step: str) -> bool:
        return all(need in self._ended for need in self._plan.needs[step])

    def _begin(self, waiting: list[str], running: dict["asyncio.Task[Ended]", str]) -> None:
        for step in list(waiting):
            if len(running) >= self._pipeline.model.max_parallel:
                return
            if self._may_begin(step):
                waiting.remove(step)
                running[asyncio.create_task(self._run(step), name=f"step {step}")] = step

    async def _run(self, step: str) -> Ended:
        self._begun.append(step)
        return await self._pipeline.steps[step].run(self._tries, self._scope(step))

    def _collect(self, running: dict["asyncio.Task[Ended]", str]) -> list[str]:
        done = {step: job for job, step in running.items() if job.done()}
        found = sorted(done, key=self._plan.order.index)
        for step in found:
            self._ended[step] = done[step].result()
            del running[done[step]]
        return found

    def _is_fatal(self, step: str) -> bool:
        return self._ended[step].status == "failed" and self._pipeline.steps[step].model.on_error != "continue"

    def _scope(self, step: str) -> dict[str, Json]:
        before = self._plan.before[step]
        steps: Json = {one: self._state_of(one).seen for one in self._plan.order if one in before}
        return {"input": self._input, "steps": steps}

    def _state_of(self, step: str) -> Ended:
        """How it ended. What undoes something sees steps that did not, too."""
        return self._ended.get(step) or Ended("interrupted" if step in self._interrupted else "skipped")

    async def _write_down(self, failing: str) -> Mapping[str, Json]:
        """Keep what an attempt has to know that goes on after the failure."""
        begun = [*self._begun, *(step for step in self._plan.order if step in self._earlier.steps)]
        failure: Mapping[str, Json] = {
            "step": failing,
            "ended": sorted(self._ended, key=self._earlier.moment_of),
            "begun": [one for one in dict.fromkeys(begun) if one not in self._ended],
            "unrecorded": {one: ended.error for one, ended in self._ended.items() if not ended.is_recorded},
        }
        if failure != self._task.variables.get(FAILURE):
            await self._task.variables.set(FAILURE, failure)
        return failure

    async def _tell(self, running: Collection[str]) -> None:
        await self._task.progress(len(self._ended), len(self._plan.order), ", ".join(running))

    async def _undo(self, begun: Sequence[str]) -> dict[str, Ended]:
        """Undo what has begun, the latest first, where the file says how. Restored steps are another task's."""
        undone: dict[str, Ended] = {}
        for step in reversed(begun):
            by = self._plan.undoes.get(step)
            if by is None or by in undone or step in self._restored or self._state_of(step).status == "skipped":
                continue
            await self._task.progress(len(self._ended), len(self._plan.order), f"{by} (undoes {step})")
            undone[by] = await self._pipeline.steps[by].run(self._tries, self._scope(by))
        return undone

    def _failed(self, step: str, undone: Mapping[str, Ended]) -> PipelineFailed:
        error = cast("Mapping[str, str]", self._ended[step].error)
        words = self._pipeline.steps[step].doing.action.words
        parts = [f"step {step!r} failed ({error['kind']}) at `{words}`: {error['message']}"]
        fine = [by for by, ended in undone.items() if ended.status != "failed"]
        if fine:
            parts.append(f"undone by {', '.join(fine)}")
        for by, ended in undone.items():
            if ended.status == "failed":
                what = f"{by} could not undo" if ended.is_recorded else f"what {by} did could not be recorded"
                parts.append(f"{what}: {cast('Mapping[str, str]', ended.error)['message']}")
        return PipelineFailed(step, "; ".join(parts))

    def _output(self) -> Json:
        last = self._ended[self._plan.order[-1]]
        if self._pipeline.output is None:
            return last.result
        steps: Json = {one: ended.seen for one, ended in self._ended.items()}
        env = self._pipeline.surroundings.variables()
        try:
            return self._pipeline.output.render({"input": self._input, "steps": steps, "env": env})
        except ExpressionFailed as error:
            raise PipelineFailed("output", f"the output can't be worked out: {error}") from error


async def _stop(running: Collection["asyncio.Task[Ended]"]) -> None:
    for job in running:
        job.cancel()
    if running:
        await asyncio.wait(running)
