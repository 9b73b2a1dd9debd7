"""One task that runs a pipeline.

Theory of operation
===================
Every attempt at the task runs the body from its start, so the body must be deterministic. It is: the outcome of a step
is recorded, and the decisions between steps depend only on records, on the arguments and on steps that must have ended
before. So if steps end in another order after a crash, the result is the same.

One thing depends on the order: when a step fails, the steps that run beside it are stopped. The failure of a pipeline
is therefore stored before anything is stopped or compensated. An attempt that finds the failure looks up which steps
had ended by then, starts no other steps, and continues with the compensation.

`PreviousAttempts` reads what earlier attempts have recorded, by step: the name of a checkpoint starts with the name of
its step.
"""

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from raincheck.core.records import Step as Checkpoint
from raincheck.core.values import Json, clip, decode
from raincheck.engine.execution.context import TaskContext
from raincheck.engine.execution.workflow_context import WorkflowContext
from raincheck.errors import ToolError
from raincheck.workflows.actions.base import Action, ActionResult, Tries
from raincheck.workflows.expressions.template import ExpressionFailed, Scope
from raincheck.workflows.pipelines.step import PipelineStep, StepResult

if TYPE_CHECKING:
    from raincheck.workflows.pipelines.pipeline import Pipeline


FAR_FUTURE = datetime.max.replace(tzinfo=UTC)


class PreviousAttempts(Tries):
    """The records of the attempts before this one, as tries that are replayed from them and never made."""

    def __init__(self, task: TaskContext) -> None:
        super().__init__(task)
        self._workflow = WorkflowContext(task)
        self._artifacts = self._workflow.stored_artifacts
        self._records: dict[str, Checkpoint] = {}
        self._finished_at: dict[str, datetime] = {}
        for checkpoint in self._workflow.recorded_steps:
            step, finished_at = _step_of(checkpoint), checkpoint.finished_at
            self._finished_at[step] = max(finished_at, self._finished_at.get(step, finished_at))
            if _kind_of(checkpoint) == "step":
                self._records[checkpoint.name] = checkpoint

    @property
    def steps(self) -> Collection[str]:
        """The steps that had started and have a record."""
        return self._finished_at.keys()

    def finished_at(self, step: str) -> datetime:
        """Return when a step last recorded something in earlier attempts. A step without a record there comes last."""
        return self._finished_at.get(step, FAR_FUTURE)

    async def replay_step(self, step: PipelineStep, scope: Scope) -> StepResult | None:
        """Return how a step ended; None if it had not. It only reads records, and runs nothing."""
        try:
            return await step.run(self, scope)
        except _MissingRecord:
            return None

    async def run_try(self, action: Action, name: str, scope: Scope) -> ActionResult:  # noqa: ARG002 - the signature of `Tries`
        if name not in self._records:
            raise _MissingRecord
        return ActionResult.from_record(decode(self._records[name].result))

    async def pause(self, seconds: float, name: str) -> None:
        """Return at once: if the next try is recorded, the wait before it is over."""

    async def store_artifact(self, artifact: str | None, result: Json) -> None:  # noqa: ARG002 - likewise
        if artifact is not None and artifact not in self._artifacts:
            raise _MissingRecord

    def ignore_rest(self) -> None:
        """Stop the replay: no other record of earlier attempts is read."""
        self._workflow.ignore_unreplayed()

    async def cancel_children(self, steps: Collection[str]) -> None:
        """Cancel the children of these steps, which are no longer awaited."""
        for checkpoint in self._workflow.recorded_steps:
            if _kind_of(checkpoint) == "spawn" and _step_of(checkpoint) in steps:
                await self._workflow.cancel_child(str(decode(checkpoint.result)))


class _MissingRecord(Exception):
    pass


def _kind_of(checkpoint: Checkpoint) -> str:
    return checkpoint.fingerprint.partition(":")[0]


def _step_of(checkpoint: Checkpoint) -> str:
    """Return the step that a checkpoint belongs to: `each` for `each[3] try 2`, and for `sleep each[3] backoff`."""
    kind = _kind_of(checkpoint)
    name = checkpoint.name if kind == "step" else checkpoint.name.removeprefix(f"{kind} ")
    return re.split(r"[\[ ]", name, maxsplit=1)[0]


FAILURE_VARIABLE = "failure"
"""The task variable that stores the failure: the step that failed, the steps that had ended by then in that order, the
other steps that had started, the message if it was the output, and the errors of steps that could not be recorded."""


OUTPUT = ""
"""The step that failed if all steps have ended, and the output can't be evaluated."""


class PipelineRun:
    """A run of a pipeline, by one attempt."""

    def __init__(
        self, pipeline: "Pipeline", task: TaskContext, arguments: Mapping[str, Json], restored: Mapping[str, Json]
    ) -> None:
        self._pipeline = pipeline
        self._plan = pipeline.plan
        self._task = task
        self._tries = Tries(task)
        self._input = arguments
        self._restored = restored
        self._results: dict[str, StepResult] = {
            step_id: StepResult("completed", result)
            for step_id, result in restored.items()
            if step_id in self._plan.order
        }
        self._previous = PreviousAttempts(task)
        self._started: list[str] = []
        self._interrupted: Sequence[str] = ()

    async def run(self) -> Json:
        """Run the pipeline and return its output.

        Raises:
            ToolError: a step has failed, or the output can't be evaluated.
        """
        failure = cast("Mapping[str, Json] | None", self._task.variables.get(FAILURE_VARIABLE))
        if failure is None:
            failing = await self._run_steps(self._plan.order)
            message = ""
            if failing is None:
                try:
                    return self._output()
                except ExpressionFailed as error:
                    failing = OUTPUT
                    reason = self._pipeline.permissions.redact(str(error))
                    message = clip(f"the output can't be evaluated: {reason}") or ""
            # Saved again, since a step may have ended while it was being stopped.
            failure = await self._save_failure(failing, message)
        else:
            for step, error in cast("Mapping[str, Json]", failure.get("unrecorded", {})).items():
                self._results[step] = StepResult("failed", None, error, is_recorded=False)
            await self._run_steps(cast("Sequence[str]", failure["ended"]), is_resuming=True)
        self._interrupted = cast("Sequence[str]", failure.get("begun", ()))
        self._previous.ignore_rest()
        # The children of this attempt were cancelled with their steps. An earlier attempt may have ended before that.
        await self._previous.cancel_children(self._interrupted)
        undone = await self._compensate([*cast("Sequence[str]", failure["ended"]), *self._interrupted])
        raise self._failure_error(failure, undone)

    async def _run_steps(self, steps: Sequence[str], *, is_resuming: bool = False) -> str | None:
        """Run these steps until they have ended, or until one fails the pipeline. Return the step that failed."""
        waiting = [step for step in steps if step not in self._results]
        running: dict[asyncio.Task[StepResult], str] = {}
        try:
            while waiting or running:
                self._start_ready_steps(waiting, running)
                await self._report_progress(running.values())
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                ended = self._collect(running)
                fatal = [step for step in ended if self._is_fatal(step)]
                if fatal and not is_resuming:
                    await self._catch_up()
                    # Before other steps are stopped: a later attempt must not mistake the stop for their failure.
                    await self._save_failure(fatal[0])
                    return fatal[0]
        finally:
            await _stop(running)
            # A step that ended before it could be stopped has done its work, and may need compensation.
            self._collect(
                {
                    step_run: step
                    for step_run, step in running.items()
                    if not step_run.cancelled() and not step_run.exception()
                }
            )
        return None

    async def _catch_up(self) -> None:
        """Collect steps that had ended in an earlier attempt, and that this one has not reached yet."""
        # Steps without a record (skipped, or without items) had ended if a step after them has one.
        started = [step for step in self._plan.order if step in self._previous.steps]
        reached = {name for step in started for name in (step, *self._plan.predecessors[step])}
        count = -1
        while count != len(self._results):
            count = len(self._results)
            for step in self._plan.order:
                if step in reached and step not in self._results and self._is_ready(step):
                    ended = await self._previous.replay_step(self._pipeline.steps[step], self._scope(step))
                    if ended is not None:
                        self._results[step] = ended

    def _is_ready(self, step: str) -> bool:
        return all(need in self._results for need in self._plan.needs[step])

    def _start_ready_steps(self, waiting: list[str], running: dict["asyncio.Task[StepResult]", str]) -> None:
        for step in list(waiting):
            if len(running) >= self._pipeline.model.max_parallel:
                return
            if self._is_ready(step):
                waiting.remove(step)
                running[asyncio.create_task(self._run_step(step), name=f"step {step}")] = step

    async def _run_step(self, step: str) -> StepResult:
        self._started.append(step)
        return await self._pipeline.steps[step].run(self._tries, self._scope(step))

    def _collect(self, running: dict["asyncio.Task[StepResult]", str]) -> list[str]:
        done = {step: step_run for step_run, step in running.items() if step_run.done()}
        ended = sorted(done, key=self._plan.order.index)
        for step in ended:
            self._results[step] = done[step].result()
            del running[done[step]]
        return ended

    def _is_fatal(self, step: str) -> bool:
        return self._results[step].status == "failed" and self._pipeline.steps[step].model.on_error != "continue"

    def _scope(self, step: str) -> dict[str, Json]:
        before = self._plan.predecessors[step]
        steps: Json = {name: self._result_of(name).for_expressions for name in self._plan.order if name in before}
        return {"input": self._input, "steps": steps}

    def _result_of(self, step: str) -> StepResult:
        """Return how a step ended. A compensating step also sees steps that did not end."""
        return self._results.get(step) or StepResult("interrupted" if step in self._interrupted else "skipped")

    async def _save_failure(self, failing: str, message: str = "") -> Mapping[str, Json]:
        """Store what an attempt that resumes after the failure needs to know."""
        started = [*self._started, *(step for step in self._plan.order if step in self._previous.steps)]
        failure: Mapping[str, Json] = {
            "step": failing,
            "ended": sorted(self._results, key=self._previous.finished_at),
            "begun": [step for step in dict.fromkeys(started) if step not in self._results],
            "message": message,
            "unrecorded": {step: result.error for step, result in self._results.items() if not result.is_recorded},
        }
        if failure != self._task.variables.get(FAILURE_VARIABLE):
            await self._task.variables.set(FAILURE_VARIABLE, failure)
        return failure

    async def _report_progress(self, running: Collection[str]) -> None:
        await self._task.progress(len(self._results), len(self._plan.order), ", ".join(running))

    async def _compensate(self, started: Sequence[str]) -> dict[str, StepResult]:
        """Run the declared compensations of steps that started, latest first. Restored steps belong to another task."""
        undone: dict[str, StepResult] = {}
        for step in reversed(started):
            undo = self._plan.compensations.get(step)
            if undo is None or undo in undone or step in self._restored or self._result_of(step).status == "skipped":
                continue
            await self._task.progress(len(self._results), len(self._plan.order), f"{undo} (undoes {step})")
            undone[undo] = await self._pipeline.steps[undo].run(self._tries, self._scope(undo))
        return undone

    def _failure_error(self, failure: Mapping[str, Json], undone: Mapping[str, StepResult]) -> ToolError:
        step = str(failure["step"])
        if step == OUTPUT:
            parts = [str(failure["message"])]
        else:
            error = cast("Mapping[str, str]", self._results[step].error)
            label = self._pipeline.steps[step].action.label
            parts = [f"step {step!r} failed ({error['kind']}) at `{label}`: {error['message']}"]
        successful = [undo for undo, result in undone.items() if result.status != "failed"]
        if successful:
            parts.append(f"undone by {', '.join(successful)}")
        for undo, result in undone.items():
            if result.status == "failed":
                fault = (
                    f"undo step {undo} failed"
                    if result.is_recorded
                    else f"the outcome of undo step {undo} is not recorded"
                )
                parts.append(f"{fault}: {cast('Mapping[str, str]', result.error)['message']}")
        return ToolError("; ".join(parts))

    def _output(self) -> Json:
        last = self._results[self._plan.order[-1]]
        if self._pipeline.output is None:
            return last.result
        steps: Json = {step: result.for_expressions for step, result in self._results.items()}
        env = self._pipeline.permissions.environment()
        return self._pipeline.output.render({"input": self._input, "steps": steps, "env": env})


async def _stop(running: Collection["asyncio.Task[StepResult]"]) -> None:
    for step_run in running:
        step_run.cancel()
    if running:
        await asyncio.wait(running)
