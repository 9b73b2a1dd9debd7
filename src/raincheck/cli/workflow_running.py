"""Running a workflow in this process: begin it as a task, and stay with it as with any call."""

import logging
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from raincheck.address import MemoryAddress
from raincheck.cli.arguments import check_arguments, read_arguments, read_files
from raincheck.cli.book import Ledger
from raincheck.cli.book_option import book_path
from raincheck.cli.calling import Scene, make_manner
from raincheck.cli.endings import Ending, Unusable, tell
from raincheck.cli.reaching import quiet, reach
from raincheck.cli.unusable import find_workflow
from raincheck.cli.wishes import Wishes
from raincheck.cli.workflow_here import HereTarget
from raincheck.cli.workflow_restoring import Earlier, earlier_run
from raincheck.cli.workflow_tasks import WorkflowTasks
from raincheck.client import Slip
from raincheck.clock import SystemClock
from raincheck.core.owner import Owner
from raincheck.engine import Engine
from raincheck.opening import find_address
from raincheck.server.callers import ANSWERED_IN_WORDS
from raincheck.workflows.common_model import RESTORED
from raincheck.workflows.definition import Definition


@dataclass(frozen=True, slots=True)
class Asked:
    """What to run."""

    name: str
    words: list[str]
    """Its arguments, as they were typed."""
    store: str | None
    step: str | None
    """The step to begin with; None for all of them."""
    task_id: str | None
    """The task whose results to take; None for that of the latest run."""


class _Telling(logging.Handler):
    """Tells what functions of steps raise: whoever runs it here is its operator, and there is no other log."""

    def emit(self, record: logging.LogRecord) -> None:
        tell(self.format(record))

    @classmethod
    @contextmanager
    def meanwhile(cls, *, is_verbose: bool) -> Generator[None]:
        logger, handler = logging.getLogger("raincheck.workflows.steps_python"), cls()
        if not is_verbose:
            logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)


async def run_workflow(tasks: WorkflowTasks, asked: Asked, wishes: Wishes) -> Ending:
    """Run a workflow, and wait for the result.

    Raises:
        Unusable: it can't be run like that.
    """
    if not wishes.is_verbose:
        quiet()
    definition, given = find_workflow(tasks.path, tasks.definitions, asked.name), read_files(asked.words)
    tasks.configure(store=asked.store)
    if isinstance(find_address(tasks.options.store), MemoryAddress):
        raise Unusable(
            "what is kept in memory: ends with this command, and nobody could come back to it: name a file with --store"
        )
    target, book = HereTarget(tasks, asked.store), Ledger(book_path(wishes.named_book))
    # A book that can't be used is better known before there is a task.
    await book.slips()
    manner, scene = make_manner(target, book, wishes), Scene(asked.name, wishes.timeout)
    earlier = await _earlier(tasks, definition, asked)
    anew = read_arguments(given, definition.input_schema)
    arguments = {**earlier.arguments, **anew}
    check_arguments(asked.name, arguments, definition.input_schema, verb="run")
    _warn_of_mixing(earlier, anew)
    with scene.set(), _Telling.meanwhile(is_verbose=wishes.is_verbose):
        async with tasks.running() as engine:
            guard = scene.vigil.until_there
            async with reach(target, book=book, asked=scene.asker, within=wishes.within, guard=guard) as client:
                scene.vigil.begin()
                slip = await _begin(engine, target, definition, arguments, earlier)
                await book.add(slip)
                return await scene.stay(client.take_up(slip), manner)


async def _earlier(tasks: WorkflowTasks, definition: Definition, asked: Asked) -> Earlier:
    if asked.step is None:
        return Earlier({}, None)
    return await earlier_run(tasks, definition, asked.step, asked.task_id)


def _warn_of_mixing(earlier: Earlier, anew: dict[str, Any]) -> None:
    """Results that are taken over were made with the arguments of the earlier run."""
    others = [name for name, value in anew.items() if earlier.arguments.get(name) != value]
    if earlier.restored and others:
        tell(f"careful: {', '.join(others)} is not what the earlier run had, whose results are taken as they are")


async def _begin(
    engine: Engine, target: HereTarget, definition: Definition, arguments: dict[str, Any], earlier: Earlier
) -> Slip:
    """Make the task. Not by a call: no caller may say what steps came to."""
    restored = {} if earlier.restored is None else {RESTORED: earlier.restored}
    task = await engine.submit(
        definition.name,
        {**arguments, **restored},
        owner=Owner.local(),
        caller={"capabilities": ANSWERED_IN_WORDS},
        checks=False,
    )
    now = SystemClock().now().isoformat(timespec="seconds")
    return Slip(server=target.name, task_id=task.id, tool=definition.name, tier="2026-07-28", taken_at=now)
