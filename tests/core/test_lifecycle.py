"""Invariants of the lifecycle table."""

from collections.abc import Mapping
from typing import cast

import pytest

from raincheck.core.lifecycle import (
    INITIAL_PHASES,
    LIVE_PHASES,
    TERMINAL_PHASES,
    TRANSITIONS,
    Event,
    Phase,
    Status,
    status_of,
)


def _reachable(start: frozenset[Phase]) -> set[Phase]:
    found = set(start)
    while more := {target for phase in found for target in TRANSITIONS[phase].values()} - found:
        found |= more
    return found


def test_every_phase_has_a_row() -> None:
    assert set(TRANSITIONS) == set(Phase)


def test_the_terminal_phases_have_empty_rows() -> None:
    assert frozenset(phase for phase in Phase if not TRANSITIONS[phase]) == TERMINAL_PHASES
    assert frozenset({Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED}) == TERMINAL_PHASES
    assert frozenset(Phase) - TERMINAL_PHASES == LIVE_PHASES


def test_every_event_but_create_is_in_the_table() -> None:
    assert {event for row in TRANSITIONS.values() for event in row} == set(Event) - {Event.CREATE}


@pytest.mark.parametrize("phase", sorted(LIVE_PHASES))
def test_every_live_phase_can_be_cancelled_and_expired(phase: Phase) -> None:
    assert TRANSITIONS[phase][Event.CANCEL] is Phase.CANCELLED
    assert TRANSITIONS[phase][Event.EXPIRE] is Phase.FAILED


def test_every_phase_can_be_reached_from_the_initial_phases() -> None:
    assert INITIAL_PHASES <= LIVE_PHASES
    assert _reachable(INITIAL_PHASES) == set(Phase)


@pytest.mark.parametrize("phase", sorted(LIVE_PHASES))
def test_every_terminal_phase_can_be_reached_from_every_live_phase(phase: Phase) -> None:
    assert _reachable(frozenset({phase})) >= TERMINAL_PHASES


def test_only_a_claim_leads_into_running_and_only_from_the_queue() -> None:
    into_running = {
        (phase, event)
        for phase, row in TRANSITIONS.items()
        for event, target in row.items()
        if target is Phase.RUNNING and phase is not Phase.RUNNING
    }
    assert into_running == {(Phase.QUEUED, Event.CLAIM)}


def test_only_a_running_task_can_complete() -> None:
    assert [phase for phase, row in TRANSITIONS.items() if Event.COMPLETE in row] == [Phase.RUNNING]


def test_a_paused_task_leaves_its_phase_only_on_request() -> None:
    leaving = {event for event, target in TRANSITIONS[Phase.PAUSED].items() if target is not Phase.PAUSED}
    assert leaving == {Event.RESUME, Event.CANCEL, Event.EXPIRE}


@pytest.mark.parametrize("table", [TRANSITIONS, *TRANSITIONS.values()])
def test_the_table_is_read_only(table: Mapping[str, object]) -> None:
    with pytest.raises(TypeError):
        cast("dict[str, object]", table)["anything"] = Phase.QUEUED


@pytest.mark.parametrize("phase", sorted(LIVE_PHASES))
def test_a_live_task_works_or_needs_input(phase: Phase) -> None:
    assert status_of(phase, open_inputs=0) is Status.WORKING
    assert status_of(phase, open_inputs=1) is Status.INPUT_REQUIRED


@pytest.mark.parametrize("phase", sorted(TERMINAL_PHASES))
@pytest.mark.parametrize("open_inputs", [0, 1])
def test_an_ended_task_has_its_terminal_status_despite_open_questions(phase: Phase, open_inputs: int) -> None:
    assert status_of(phase, open_inputs=open_inputs) == phase.value


def test_the_wire_has_the_five_status_values_of_the_protocol() -> None:
    assert {str(status) for status in Status} == {"working", "input_required", "completed", "failed", "cancelled"}
