"""Checks of what servers answered."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.adversary.chaos.evidence import TERMINAL, Exchange, Index, canonical
from tests.adversary.chaos.store_checks import FLEETING

FLEETING_KEEP = 3.0
NOT_FOUND = -32602
UNAVAILABLE = (-32603, -32010)
"""The store can't be reached now, or the server has too much to do: the same request may succeed later."""

CANCELLED = -32000
"""On `tasks/result`; and the SDK's own answer while its server stops."""

RELATED, INPUT_KEY = "io.modelcontextprotocol/related-task", "raincheck/input-key"


def handles_resolve(index: Index) -> Iterator[str]:
    """A task whose id was returned is found until its time is over."""
    for task_id, created in index.handles.items():
        assert created.received_at is not None
        ttls = [each.task.get("ttlMs", each.task.get("ttl")) or 0 for each in index.sightings[task_id]]
        kept_until = created.sent_at + max(FLEETING_KEEP, max(ttls, default=0) / 1_000)
        for exchange in index.own(task_id):
            if exchange.error is None or exchange.sent_at < created.received_at:
                continue
            is_early = created.params["name"] != FLEETING or (exchange.received_at or 0) < kept_until
            if _is_not_found(exchange) and is_early:
                yield f"{task_id}: {exchange.method} did not find it: {exchange.error['message']}"


def _is_not_found(exchange: Exchange) -> bool:
    error = exchange.error
    return error is not None and error["code"] == NOT_FOUND and "not found" in error["message"]


def errors_are_expected(index: Index) -> Iterator[str]:
    for exchange in index.evidence.exchanges:
        if exchange.error is None or exchange.is_probe or exchange.error["code"] in UNAVAILABLE:
            continue
        is_refused_cancel = exchange.method == "tasks/cancel" and exchange.error["code"] == NOT_FOUND
        is_cancelled = exchange.error["code"] == CANCELLED
        if not (is_refused_cancel or is_cancelled or _is_not_found(exchange)):
            yield f"{exchange.task_id}: {exchange.method} of {exchange.generation} was refused: {exchange.error}"


def ends_are_final(index: Index) -> Iterator[str]:
    """A status that is terminal never changes, and neither does its result."""
    for task_id, sightings in index.sightings.items():
        ended = [each for each in sightings if each.status in TERMINAL]
        if not ended:
            continue
        ends: defaultdict[str, set[str]] = defaultdict(set)
        for each in ended:
            ends[each.exchange.generation].add(canonical([each.status, each.task.get("lastUpdatedAt")]))
            if "error" in each.task:
                ends["the error"].add(canonical(each.task["error"]))
        for form, found in ends.items():
            if len(found) > 1:
                yield f"{task_id}: its end changed ({form}): {' | '.join(sorted(found))}"
        seen_at = min(each.received_at for each in ended)
        for each in sightings:
            if each.status not in TERMINAL and each.sent_at > seen_at:
                yield f"{task_id}: it was {each.status} after it had been seen {ended[0].status}"


def ends_come_with_their_outcome(index: Index) -> Iterator[str]:
    """Check that no caller sees the end of a task without its outcome."""
    for task_id, sightings in index.sightings.items():
        for each in sightings:
            is_complete = each.exchange.generation == "2026-07-28" and each.exchange.method != "tools/call"
            outcome = {"completed": "result", "failed": "error"}.get(each.status)
            if is_complete and outcome is not None and outcome not in each.task:
                yield f"{task_id}: {each.exchange.method} showed it {each.status}, without its {outcome}"


def ends_are_what_the_store_has(index: Index) -> Iterator[str]:
    for task_id, sightings in index.sightings.items():
        task = index.evidence.exported.get(task_id)
        if task is None:
            continue
        for generation in ("2025-11-25", "2026-07-28"):
            seen = {
                each.status for each in sightings if each.exchange.generation == generation and each.status in TERMINAL
            }
            stored = "failed" if generation == "2025-11-25" and task["is_error"] else task["status"]
            if seen - {stored}:
                yield f"{task_id}: callers of {generation} saw it {' and '.join(sorted(seen))}; it is {stored}"


def results_are_right(index: Index) -> Iterator[str]:
    """All results of a task are the same, and what its caller had to expect."""
    for task_id, plan in index.evidence.plans.items():
        results = {canonical(_content(result)) for result in _results(index, task_id)}
        if len(results) > 1:
            yield f"{task_id}: its result changed: {' | '.join(sorted(results))}"
        for result in _results(index, task_id):
            if result.get("isError"):
                continue
            found = result.get("structuredContent", {}).get("result")
            if plan.expected is not None and found != plan.expected:
                yield f"{task_id}: {plan.tool} returned {found}, and had to return {plan.expected}"
                break


def _results(index: Index, task_id: str) -> Iterator[Any]:
    for sighting in index.sightings[task_id]:
        if sighting.status == "completed" and "result" in sighting.task:
            yield sighting.task["result"]
    for exchange in index.own(task_id):
        if exchange.method == "tasks/result" and exchange.result is not None and not exchange.result.get("isError"):
            yield exchange.result


def _content(result: Any) -> Any:
    return [result.get("content"), result.get("structuredContent"), result.get("isError", False)]


def strangers_see_nothing(index: Index) -> Iterator[str]:
    """Another owner's task and one that does not exist are answered alike."""
    answers: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for exchange in index.evidence.exchanges:
        if not exchange.is_probe:
            continue
        shown = [each.method for each in exchange.messages if each.method.startswith("notifications/tasks")]
        if shown or (exchange.result is not None and exchange.method != "subscriptions/listen"):
            yield f"{exchange.task_id}: {exchange.owner}, who does not own it, was answered: {exchange.result}"
        if exchange.error is not None and exchange.error["code"] not in (*UNAVAILABLE, CANCELLED):
            answer = re.sub(str(exchange.task_id), "ID", canonical(exchange.error))
            answers[exchange.generation, exchange.method].add(answer)
    for (generation, method), found in answers.items():
        if len(found) > 1:
            yield f"{method} of {generation} tells tasks of other owners from unknown ones: {' | '.join(sorted(found))}"


def lists_are_complete(index: Index) -> Iterator[str]:
    """A list has every task whose id its owner knew before, and none of another owner."""
    owners = {task_id: exchange.owner for task_id, exchange in index.handles.items()}
    for listing in index.evidence.listings:
        for task_id, created in index.handles.items():
            known = created.received_at is not None and created.received_at < listing.sent_at
            is_kept = known and created.params["name"] != FLEETING
            if is_kept and created.owner == listing.owner and task_id not in listing.ids:
                yield f"{task_id}: the list of {listing.owner} does not have it"
        for task_id in sorted(listing.ids):
            if owners.get(task_id, listing.owner) != listing.owner:
                yield f"{task_id}: the list of {listing.owner} has it, and it belongs to {owners[task_id]}"


@dataclass(frozen=True, slots=True)
class _Asking:
    """A question that a caller was asked."""

    task_id: str
    message: str
    key: str | None
    sent_at: float
    """When the request was sent whose answer, or stream, had the question."""


def _askings(index: Index) -> Iterator[_Asking]:
    for sightings in index.sightings.values():
        for sighting in sightings:
            for key, request in sighting.task.get("inputRequests", {}).items():
                message = request["params"]["message"]
                yield _Asking(sighting.task["taskId"], message, key, sighting.sent_at)
    for exchange in index.evidence.exchanges:
        for message in exchange.messages:
            if message.method == "elicitation/create" and exchange.task_id is not None:
                key = message.params.get("_meta", {}).get(INPUT_KEY)
                yield _Asking(exchange.task_id, message.params["message"], key, exchange.sent_at)


def questions_are_asked_once(index: Index) -> Iterator[str]:
    """A question keeps its key, and is not asked again after it was answered."""
    answered_at: dict[tuple[str, str], float] = {}
    for exchange in index.evidence.exchanges:
        if exchange.method == "tasks/update" and exchange.result is not None and not exchange.is_probe:
            for key in exchange.params["inputResponses"]:
                at = exchange.received_at or float("inf")
                answered_at[exchange.params["taskId"], key] = min(
                    at, answered_at.get((exchange.params["taskId"], key), at)
                )
    bodies_know_at = {
        (effect.subject, effect.detail): effect.at
        for effect in reversed(index.evidence.effects)
        if effect.event == "answered"
    }
    keys: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for asking in _askings(index):
        if asking.key is not None:
            keys[asking.task_id, asking.message].add(asking.key)
            if asking.sent_at > answered_at.get((asking.task_id, asking.key), float("inf")):
                yield f"{asking.task_id}: it asked {asking.message!r} again, after the answer was acknowledged"
        if asking.sent_at > bodies_know_at.get((asking.task_id, asking.message), float("inf")):
            yield f"{asking.task_id}: it asked {asking.message!r} again, after its body had the answer"
    for (task_id, message), found in keys.items():
        if len(found) > 1:
            yield f"{task_id}: it asked {message!r} with the keys {sorted(found)}"


RESPONSE_CHECKS = (
    handles_resolve,
    errors_are_expected,
    ends_are_final,
    ends_come_with_their_outcome,
    ends_are_what_the_store_has,
    results_are_right,
    strangers_see_nothing,
    lists_are_complete,
    questions_are_asked_once,
)
