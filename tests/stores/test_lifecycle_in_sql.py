"""The constraints and the trigger of the SQL schema agree with the lifecycle table."""

import re
from importlib.resources import files

from raincheck.core.lifecycle import TERMINAL_PHASES, TRANSITIONS, Phase

SCHEMA = (files("raincheck.stores.sqlite") / "schema.sql").read_text(encoding="utf-8")


def _words(pattern: str) -> list[str]:
    """Return the quoted words in the text that the pattern's group matches, which must occur exactly once."""
    (found,) = re.findall(pattern, SCHEMA, re.DOTALL)
    return re.findall(r"'([^']*)'", found)


def test_the_schema_allows_exactly_the_phases_of_the_lifecycle() -> None:
    phases = _words(r"CHECK \(phase IN \(([^)]*)\)\)")
    assert sorted(phases) == sorted(Phase)


def test_a_row_has_an_end_time_exactly_in_the_terminal_phases() -> None:
    ended = _words(r"CHECK \(\(phase IN \(([^)]*)\)\) = \(finished_at IS NOT NULL\)\)")
    assert sorted(ended) == sorted(TERMINAL_PHASES)


def test_the_trigger_allows_exactly_the_transitions_of_the_lifecycle() -> None:
    pairs = _words(r"CREATE TRIGGER tasks_follow_the_lifecycle BEFORE UPDATE OF phase ON tasks\s+WHEN [^(]*\(([^)]*)\)")
    allowed = {f"{phase} {target}" for phase, row in TRANSITIONS.items() for target in row.values()}
    assert sorted(pairs) == sorted(allowed)


def test_a_row_has_a_lease_exactly_while_running() -> None:
    assert "CHECK ((phase = 'running') = (lease_expires_at IS NOT NULL))" in SCHEMA


def test_a_row_has_a_due_time_only_in_the_waiting_phases() -> None:
    assert _words(r"CHECK \(due_at IS NULL OR phase IN \(([^)]*)\)\)") == [Phase.PARKED, Phase.PAUSED]
