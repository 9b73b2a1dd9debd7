"""What an earlier run of a workflow left: its arguments, and the results of its steps."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from raincheck.cli.endings import Unusable, tell
from raincheck.cli.finding_tasks import find_task
from raincheck.cli.plain import told_id
from raincheck.cli.schemas import as_object
from raincheck.cli.store_option import open_existing
from raincheck.cli.workflow_tasks import WorkflowTasks
from raincheck.clock import StoresClock
from raincheck.core.owner import Scope
from raincheck.core.payload import Json, decode
from raincheck.core.records import Task
from raincheck.stores.interface import Store
from raincheck.stores.requests import PAGE_LIMIT, TaskQuery
from raincheck.workflows.common_model import RESTORED
from raincheck.workflows.definition import Definition

if TYPE_CHECKING:
    from raincheck.workflows.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Earlier:
    """What to begin with."""

    arguments: dict[str, Any]
    restored: dict[str, Json] | None
    """The results of steps; None if nothing is taken from an earlier run."""


async def earlier_run(tasks: WorkflowTasks, definition: Definition, step: str, task_id: str | None) -> Earlier:
    """What there is of an earlier run for one that begins with a step.

    Raises:
        Unusable: there was none, or it is of no use.
    """
    pipeline = _pipeline_with(definition, step)
    clock = StoresClock()
    # As an operator: what a server ran for others may be gone on with here, too.
    async with open_existing(_store_of(tasks), clock) as store:
        task = await _find(store, tasks, definition.name, task_id, clock)
        journal = await store.journal(task.id, Scope.everything(), now=clock.now())
    arguments = cast("dict[str, Any]", decode(journal.arguments))
    before = cast("dict[str, Json]", arguments.pop(RESTORED, {}))
    checkpoints = {one.name: decode(one.result) for one in journal.steps}
    restored = _restorable(pipeline, step, before, checkpoints)
    anew = [one for one in pipeline.plan.order if one in pipeline.before(step) and one not in restored]
    many = "1 result of a step is that" if len(restored) == 1 else f"{len(restored)} results of steps are those"
    tell(f"{many} of task {told_id(task.id)}")
    if anew:
        tell(f"of what is before {step}, it has no result of {', '.join(anew)}: that is seen to anew")
    takes = as_object(definition.input_schema.get("properties"))
    # The file may have changed since, and what it does not take any more is of no use.
    return Earlier({one: value for one, value in arguments.items() if one in takes}, restored)


def _restorable(
    pipeline: "Pipeline", step: str, before: dict[str, Json], checkpoints: dict[str, Json]
) -> dict[str, Json]:
    from raincheck.workflows.restoring import find_restorable

    kept = {one: result for one, result in before.items() if one != step and _is_not_after(pipeline, one, step)}
    return {**kept, **find_restorable(pipeline, step, checkpoints)}


def _is_not_after(pipeline: "Pipeline", one: str, step: str) -> bool:
    return one in pipeline.plan.order and step not in pipeline.before(one)


def _pipeline_with(definition: Definition, step: str) -> "Pipeline":
    from raincheck.workflows.pipeline import Pipeline

    if not isinstance(definition, Pipeline):
        raise Unusable(f"{definition.name} has states and no steps: --from is for pipelines")
    if step not in definition.plan.order:
        raise Unusable(
            f"{definition.name} has no step {step!r} to begin with: it has {', '.join(definition.plan.order)}"
        )
    return definition


def _store_of(tasks: WorkflowTasks) -> str | None:
    store = tasks.options.store
    return None if store is None else str(store)


async def _find(store: Store, tasks: WorkflowTasks, name: str, task_id: str | None, clock: StoresClock) -> Task:
    now = clock.now()
    if task_id is not None:
        task = await find_task(store, task_id, now=now)
        if task.tool.name != name:
            raise Unusable(f"task {told_id(task.id)} is of {task.tool.name}, and not of {name}")
        return task
    query = TaskQuery(Scope.within(tasks.options.namespace), tool=name)
    page = await store.list_tasks(query, now=now, limit=PAGE_LIMIT)
    # What other workflows began is theirs.
    ended = [task for task in page.tasks if task.is_terminal and task.parent_id is None]
    if not ended:
        namespace = tasks.options.namespace
        raise Unusable(
            f"no run of {name} has ended in namespace {namespace!r} of this store, which is that of the file's name: "
            f"name its task with --task, or run it without --from"
        )
    return ended[0]
