"""Checks of the last export of the store: that nothing is lost, live, doubled, or broken in its history."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from tests.adversary.chaos.evidence import TERMINAL, Index

FLEETING = "fleeting"
"""The tool whose tasks are forgotten soon after their end."""


def no_task_is_lost(index: Index) -> Iterator[str]:
    for task_id, exchange in index.handles.items():
        if task_id not in index.evidence.exported and exchange.params["name"] != FLEETING:
            yield f"{task_id}: its id was returned for {exchange.params['name']}, and the store does not have it"


def every_task_has_ended(index: Index) -> Iterator[str]:
    for task_id, task in index.evidence.exported.items():
        if task["status"] not in TERMINAL:
            yield f"{task_id}: {task['tool']} is {task['phase']} in the end"


def tasks_end_as_they_must(index: Index) -> Iterator[str]:
    """A task fails only if it must not run twice, and is cancelled only by its owner or with its parent."""
    plans = index.evidence.plans
    for task_id, task in index.evidence.exported.items():
        plan = plans.get(task_id)
        may_fail = plan.may_fail if plan else task["tool"] in ("pay", "wipe", "shipment")
        if task["status"] == "failed" and not may_fail:
            yield f"{task_id}: {task['tool']} failed: {task['status_message']} {task['outcome']}"
        if task["status"] == "cancelled" and not _may_be_cancelled(index, task_id, task):
            yield f"{task_id}: {task['tool']} was cancelled, and its owner did not ask for that"


def _may_be_cancelled(index: Index, task_id: str, task: Mapping[str, Any]) -> bool:
    if task["parent_id"] is not None:
        parent = index.evidence.exported.get(task["parent_id"])
        return parent is None or parent["status"] in ("cancelled", "failed")
    # A caller that lost its connection before it had the id had its work cancelled.
    return task_id not in index.handles or any(each.method == "tasks/cancel" for each in index.own(task_id))


def keys_make_one_task(index: Index) -> Iterator[str]:
    by_key: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for task_id, task in index.evidence.exported.items():
        if task["idempotency_key"] is not None:
            by_key[str(task["owner"]), task["idempotency_key"]].add(task_id)
    for exchange in index.evidence.exchanges:
        key = exchange.params.get("_meta", {}).get("raincheck/idempotency-key")
        if key is not None and exchange.created_id is not None:
            by_key[exchange.owner, key].add(exchange.created_id)
    for (_, key), task_ids in by_key.items():
        if len(task_ids) > 1:
            yield f"the idempotency key {key} made {len(task_ids)} tasks: {', '.join(sorted(task_ids))}"


def history_is_unbroken(index: Index) -> Iterator[str]:
    for task_id, task in index.evidence.exported.items():
        for problem in _broken(task):
            yield f"{task_id}: {problem}"


def _broken(task: Mapping[str, Any]) -> Iterator[str]:
    entries: list[Mapping[str, Any]] = task["history"]
    if not entries or entries[0]["event"] != "create" or entries[0]["before"] is not None:
        yield "its history does not begin with its creation"
        return
    if [entry["seq"] for entry in entries] != list(range(1, len(entries) + 1)):
        yield f"its history has gaps: {[entry['seq'] for entry in entries]}"
    for earlier, later in pairwise(entries):
        if later["before"] != earlier["after"]:
            yield f"entry {later['seq']} of its history leads from {later['before']}, and it was {earlier['after']}"
        if later["at"] < earlier["at"] or later["attempt"] < earlier["attempt"]:
            yield f"entry {later['seq']} of its history goes back in time, or to an earlier attempt"
        if earlier["after"] in TERMINAL:
            yield f"entry {later['seq']} of its history comes after its end"
        if (later["event"] == "claim") != (later["attempt"] == earlier["attempt"] + 1):
            yield f"entry {later['seq']} of its history is a {later['event']} of attempt {later['attempt']}"
    if entries[-1]["after"] != task["phase"]:
        yield f"its history ends in {entries[-1]['after']}, and it is {task['phase']}"


def successors_exist(index: Index) -> Iterator[str]:
    """A task that completed, and set a task to follow it, is followed by it."""
    for task_id, sightings in index.sightings.items():
        task = index.evidence.exported.get(task_id)
        if task is None or task["tool"] != "chain":
            continue
        for sighting in sightings:
            successor = sighting.task.get("result", {}).get("structuredContent", {}).get("result")
            if successor is not None and successor not in index.evidence.exported:
                yield f"{task_id}: it completed, and the store does not have its successor {successor}"
                break


STORE_CHECKS = (
    no_task_is_lost,
    every_task_has_ended,
    tasks_end_as_they_must,
    keys_make_one_task,
    history_is_unbroken,
    successors_exist,
)
