"""The verifier reports each broken promise, planted here in observations that are otherwise those of a good server."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.adversary.chaos.evidence import Effect, Evidence, Exchange, Generation, Listing, Message, Plan
from tests.adversary.chaos.verifier import violations
from tests.adversary.chaos.wire import V2025, V2026

TASK = "01a1f6799aee388340a658282756102211ed981886c5"
UNKNOWN = TASK[:-4] + "0000"
RESULT = {"content": [{"type": "text", "text": "s0"}], "structuredContent": {"result": ["s0"]}, "isError": False}


def exchange(
    method: str, sent_at: float, result: Mapping[str, Any] | None = None, *, by: str = "alice", **more: Any
) -> Exchange:
    generation: Generation = more.pop("generation", V2026)
    params = more.pop("params", {"taskId": TASK})
    received_at = None if result is None and "error" not in more else sent_at + 0.1
    return Exchange(sent_at, by, generation, method, params, result=result, received_at=received_at, **more)


def shown(status: str = "working", **more: Any) -> Mapping[str, Any]:
    return {"taskId": TASK, "status": status, "lastUpdatedAt": "t1", "ttlMs": None, **more}


def not_found(task_id: str) -> Mapping[str, Any]:
    return {"code": -32602, "message": f"task '{task_id}' not found: it is unknown, has expired, or is not yours"}


def entry(seq: int, event: str, before: str | None, after: str, attempt: int = 1) -> dict[str, Any]:
    return {"seq": seq, "at": f"t{seq}", "event": event, "before": before, "after": after, "attempt": attempt}


def stored(**more: Any) -> dict[str, Any]:
    history = [
        entry(1, "create", None, "queued", 0),
        entry(2, "claim", "queued", "running"),
        entry(3, "complete", "running", "completed"),
    ]
    task = {"id": TASK, "tool": "steps", "status": "completed", "phase": "completed", "status_message": None}
    task |= {"is_error": False, "parent_id": None, "idempotency_key": None, "owner": ["header", "1"], "attempt": 1}
    return {**task, "arguments": {"n": 1}, "outcome": RESULT, "history": history, **more}


def effect(at: float, event: str, detail: str = "", *, attempt: int = 1, subject: str = TASK) -> Effect:
    return Effect(at, 1, subject, attempt, event, detail)


CREATED = exchange("tools/call", 1.0, shown(), params={"name": "steps", "arguments": {"n": 1}})
COMPLETED = exchange("tasks/get", 2.0, shown("completed", result=RESULT))
EFFECTS = (effect(1.1, "body"), effect(1.2, "run", "s0"), effect(1.3, "ran", "s0"), effect(1.4, "after", "s0"))


def good(**more: Any) -> Evidence:
    """What was observed of a server that keeps its promises."""
    probes = [
        exchange("tasks/get", 1.5, by="bob", error=not_found(each), params={"taskId": each}, is_probe=True)
        for each in (TASK, UNKNOWN)
    ]
    evidence = Evidence(
        [CREATED, COMPLETED, *probes],
        EFFECTS,
        {TASK: stored()},
        {TASK: Plan(tool="steps", arguments={"n": 1}, expected=["s0"])},
        [Listing("alice", 2.0, frozenset({TASK}))],
    )
    return replace(evidence, **more)


def with_exchanges(*added: Exchange) -> Evidence:
    return good(exchanges=[*good().exchanges, *added])


def with_effects(*added: Effect) -> Evidence:
    return good(effects=[*EFFECTS, *added])


def with_history(*entries: dict[str, Any]) -> Evidence:
    return good(exported={TASK: stored(history=list(entries))})


def asked(sent_at: float, key: str) -> Exchange:
    requests = {key: {"method": "elicitation/create", "params": {"message": "q0?"}}}
    return exchange("tasks/get", sent_at, shown("input_required", inputRequests=requests))


def answered(sent_at: float) -> Exchange:
    return exchange("tasks/update", sent_at, {}, params={"taskId": TASK, "inputResponses": {"q0-0": {}}})


def pipeline(*steps: str, fails: bool = False, is_error: bool = False) -> Evidence:
    task = stored(tool="shipment", arguments={"key": "k", "fails": fails}, is_error=is_error)
    effects = [effect(1.0, "run", step, attempt=0, subject="k") for step in steps]
    return Evidence([], effects, {TASK: task})


CANCELLED = exchange("tasks/get", 1.05, shown("cancelled"))
STREAM_2025 = exchange("tasks/result", 1.7, generation=V2025)
STREAM_2025.messages.append(Message(1.8, "elicitation/create", {"message": "q0?"}))
TAKEN_OVER = [
    entry(1, "create", None, "queued", 0),
    entry(2, "claim", "queued", "running"),
    entry(3, "interrupt", "running", "queued"),
    entry(4, "claim", "queued", "running", 2),
    entry(5, "complete", "running", "completed", 2),
]
KEYED = {"name": "steps", "arguments": {}, "_meta": {"raincheck/idempotency-key": "k"}}


def keyed(task_id: str) -> Exchange:
    return exchange("tools/call", 1.0, {**shown(), "taskId": task_id}, params=KEYED)


def test_a_good_server_has_no_violations() -> None:
    assert violations(good()) == []
    assert violations(pipeline("reserve", "pack", "upload", "give_back", fails=True, is_error=True)) == []


def test_what_a_stopped_process_may_still_do_is_no_violation() -> None:
    # Attempt 1 was stopped before it noticed that attempt 2 had replaced it. It starts a step, which is not recorded.
    effects = [effect(1.0, "body"), effect(1.1, "body", attempt=2), effect(1.2, "run", "s0", attempt=2)]
    effects += [effect(1.3, "after", "s0", attempt=2), effect(1.4, "run", "s0")]
    assert violations(good(effects=effects, exported={TASK: stored(attempt=2, history=TAKEN_OVER)})) == []


@pytest.mark.parametrize(
    ("evidence", "violation"),
    [
        # What bodies did.
        (with_effects(effect(1.5, "run", "s0")), "step s0 was recorded in attempt 1, and ran again in 1"),
        (
            good(
                effects=[
                    effect(1.0, "body"),
                    effect(1.1, "body", attempt=2),
                    effect(1.2, "run", "s0"),
                    effect(1.3, "after", "s0"),
                ],
                exported={TASK: stored(attempt=2, history=TAKEN_OVER)},
            ),
            "attempt 1 ran and recorded step s0 after it was replaced",
        ),
        (with_effects(effect(1.5, "charge"), effect(1.6, "charge")), "must not run twice ran in the attempts"),
        (with_exchanges(CANCELLED), "step s0 started after the task was seen cancelled, and was recorded"),
        (with_effects(effect(1.5, "body", attempt=7)), "the attempts [7] ran, and the store knows of 1"),
        (pipeline("reserve", "upload", fails=True, is_error=True), "what it reserved was not given back"),
        (pipeline("reserve", "give_back"), "succeeded, and what it reserved was given back"),
        (pipeline("pack", "reserve", "upload"), "although nothing interrupted it"),
        # What the store has.
        (good(exported={}), "and the store does not have it"),
        (good(exported={TASK: stored(status="working", phase="parked")}), "steps is parked in the end"),
        (good(exported={TASK: stored(status="failed")}), "steps failed"),
        (good(exported={TASK: stored(status="cancelled")}), "was cancelled, and its owner did not ask"),
        (with_exchanges(keyed(TASK), keyed(UNKNOWN)), "the idempotency key k made 2 tasks"),
        (with_history(*TAKEN_OVER[:2], TAKEN_OVER[4]), "its history has gaps"),
        (with_history(*TAKEN_OVER[:3], entry(4, "complete", "running", "completed")), "leads from running"),
        (with_history(*TAKEN_OVER, entry(6, "note", "completed", "completed", 2)), "comes after its end"),
        # What servers answered.
        (with_exchanges(exchange("tasks/get", 3.0, error=not_found(TASK))), "tasks/get did not find it"),
        (with_exchanges(exchange("tasks/get", 3.0, error={"code": -32601, "message": ""})), "was refused"),
        (with_exchanges(exchange("tasks/get", 3.0, shown("working"))), "after it had been seen completed"),
        (with_exchanges(exchange("tasks/get", 3.0, shown("failed"))), "its end changed"),
        (with_exchanges(exchange("tasks/get", 3.0, shown("completed"))), "showed it completed, without its result"),
        (
            with_exchanges(exchange("tasks/get", 3.0, shown("completed", result={**RESULT, "content": []}))),
            "its result changed",
        ),
        (
            good(plans={TASK: Plan(tool="steps", arguments={}, expected=["s0", "s1"])}),
            "had to return ['s0', 's1']",
        ),
        (with_exchanges(exchange("tasks/get", 1.5, shown(), by="bob", is_probe=True)), "bob, who does not own it"),
        (
            with_exchanges(
                exchange("tasks/get", 1.5, by="bob", error={"code": -32602, "message": "not yours"}, is_probe=True)
            ),
            "tells tasks of other owners from unknown ones",
        ),
        (good(listings=[Listing("alice", 2.0, frozenset())]), "the list of alice does not have it"),
        (good(listings=[Listing("bob", 2.0, frozenset({TASK}))]), "and it belongs to alice"),
        (with_exchanges(answered(1.5), asked(1.7, "q0-0")), "again, after the answer was acknowledged"),
        (with_exchanges(asked(1.5, "q0-0"), asked(1.7, "q0-1")), "with the keys ['q0-0', 'q0-1']"),
        (
            good(effects=[*EFFECTS, effect(1.5, "answered", "q0?")], exchanges=[*good().exchanges, STREAM_2025]),
            "again, after its body had the answer",
        ),
        (good(loose_ends=["server-0 ended by itself"]), "ended by itself"),
    ],
)
def test_a_broken_promise_is_reported(evidence: Evidence, violation: str) -> None:
    assert any(violation in found for found in violations(evidence)), violations(evidence)
