"""Checks of the log of side effects: what bodies did, and whether they might."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.adversary.chaos.evidence import Effect, Index

PIPELINE = ("reserve", "pack", "upload")
"""The steps of `shipment`, in order."""


@dataclass(slots=True)
class _Step:
    """The positions in the log of what one attempt did with one step."""

    run: list[int] = field(default_factory=list[int])
    after: list[int] = field(default_factory=list[int])


def _steps(effects: list[tuple[int, Effect]]) -> Mapping[str, Mapping[int, _Step]]:
    """Steps of one task by name, then by attempt."""
    steps: defaultdict[str, defaultdict[int, _Step]] = defaultdict(lambda: defaultdict(_Step))
    for position, effect in effects:
        if effect.event in ("run", "after"):
            getattr(steps[effect.detail][effect.attempt], effect.event).append(position)
    return steps


def no_finished_step_runs_again(index: Index) -> Iterator[str]:
    """A step that was recorded does not run again, in its own or in a later attempt.

    An earlier attempt may still start it: its process was stopped, and does not know yet that it lost the task.
    """
    for subject, effects in index.effects.items():
        for name, by_attempt in _steps(effects).items():
            for recorder, step in by_attempt.items():
                if not step.after:
                    continue
                for runner, other in by_attempt.items():
                    if runner >= recorder and any(run > step.after[0] for run in other.run):
                        yield f"{subject}: step {name} was recorded in attempt {recorder}, and ran again in {runner}"


def no_stale_attempt_makes_progress(index: Index) -> Iterator[str]:
    """After a takeover, the writes of the earlier attempt are refused."""
    for subject, effects in index.effects.items():
        bodies = {effect.attempt: position for position, effect in reversed(effects) if effect.event == "body"}
        for name, by_attempt in _steps(effects).items():
            recorders = [attempt for attempt, step in by_attempt.items() if step.run and step.after]
            if len(recorders) > 1:
                yield f"{subject}: step {name} ran and was recorded in each of the attempts {sorted(recorders)}"
            for attempt in recorders:
                later = [body for other, body in bodies.items() if other > attempt]
                if later and by_attempt[attempt].run[0] > min(later):
                    yield f"{subject}: attempt {attempt} ran and recorded step {name} after it was replaced"


def no_destructive_tool_runs_twice(index: Index) -> Iterator[str]:
    for subject, effects in index.effects.items():
        charges = [effect for _, effect in effects if effect.event == "charge"]
        if len(charges) > 1:
            attempts = [effect.attempt for effect in charges]
            yield f"{subject}: a tool that must not run twice ran in the attempts {attempts}"


def cancelled_tasks_do_no_more(index: Index) -> Iterator[str]:
    """A step that starts after a caller saw the task cancelled is not recorded.

    That all bodies stop is seen at the end of an attack, when nothing is written any more.
    """
    for task_id, sightings in index.sightings.items():
        seen_at = min((each.received_at for each in sightings if each.status == "cancelled"), default=None)
        if seen_at is None:
            continue
        started = {
            (effect.attempt, effect.detail)
            for _, effect in index.effects.get(task_id, ())
            if effect.event == "run" and effect.at > seen_at
        }
        for _, effect in index.effects.get(task_id, ()):
            if effect.event == "after" and (effect.attempt, effect.detail) in started:
                yield f"{task_id}: step {effect.detail} started after the task was seen cancelled, and was recorded"


def no_attempt_is_unknown_to_the_store(index: Index) -> Iterator[str]:
    for task_id, task in index.evidence.exported.items():
        attempts = {effect.attempt for _, effect in index.effects.get(task_id, ())}
        if unknown := sorted(attempt for attempt in attempts if attempt > task["attempt"]):
            yield f"{task_id}: the attempts {unknown} ran, and the store knows of {task['attempt']}"


def pipelines_run_in_order_and_undo_what_failed(index: Index) -> Iterator[str]:
    for task_id, task in index.evidence.exported.items():
        if task["tool"] != "shipment":
            continue
        runs = [effect.detail for _, effect in index.effects.get(task["arguments"]["key"], ()) if effect.event == "run"]
        events = Counter(entry["event"] for entry in task["history"])
        for step, count in Counter(runs).items():
            if count > events["claim"]:
                yield f"{task_id}: step {step} ran {count} times in {events['claim']} attempts"
        if not events["interrupt"] and not events["release"]:
            # Otherwise a process that was stopped, and does not know that it lost the task, may start a step late.
            places = [PIPELINE.index(step) for step in runs if step in PIPELINE]
            if places != sorted(set(places)):
                yield f"{task_id}: the steps of the pipeline ran in the order {runs}, although nothing interrupted it"
        if task["status"] == "completed":
            yield from _undone(task_id, runs, is_error=task["is_error"], should_fail=task["arguments"]["fails"])


def _undone(task_id: str, runs: list[str], *, is_error: bool, should_fail: bool) -> Iterator[str]:
    if is_error is not should_fail:
        yield f"{task_id}: the pipeline {'failed' if is_error else 'succeeded'}, and its caller wanted the opposite"
    if is_error and "give_back" not in runs:
        yield f"{task_id}: the pipeline failed, and what it reserved was not given back"
    if not is_error and "give_back" in runs:
        yield f"{task_id}: the pipeline succeeded, and what it reserved was given back"


EFFECT_CHECKS = (
    no_finished_step_runs_again,
    no_stale_attempt_makes_progress,
    no_destructive_tool_runs_twice,
    cancelled_tasks_do_no_more,
    no_attempt_is_unknown_to_the_store,
    pipelines_run_in_order_and_undo_what_failed,
)
