"""Mermaid diagrams of the table of the lifecycle."""

from collections.abc import Callable

from raincheck.core.lifecycle import INITIAL_PHASES, LIVE_PHASES, TERMINAL_PHASES, TRANSITIONS, Event, Phase


def diagram() -> str:
    """Return a diagram of every transition."""
    edges = _edges(lambda _event, _before, _after: True)
    return _mermaid([*edges, *(f"{phase} --> [*]" for phase in TRANSITIONS if phase in TERMINAL_PHASES)])


def small_diagram() -> str:
    """Return a diagram of the transitions between phases, without those that are allowed in every live phase."""
    anywhere = {event: after for event, after in TRANSITIONS[Phase.QUEUED].items() if _is_everywhere(event, after)}
    edges = _edges(lambda event, before, after: before is not after and event not in anywhere)
    also = " and ".join(f"`{event}` (to `{after}`)" for event, after in anywhere.items())
    return f"{_mermaid(edges)}\n\nA task in any phase that is not an end also takes {also}."


def _is_everywhere(event: Event, after: Phase) -> bool:
    return all(TRANSITIONS[phase].get(event) is after for phase in LIVE_PHASES)


def _edges(is_included: Callable[[Event, Phase, Phase], bool]) -> list[str]:
    events: dict[tuple[Phase, Phase], list[str]] = {}
    for before, row in TRANSITIONS.items():
        for event, after in row.items():
            if is_included(event, before, after):
                events.setdefault((before, after), []).append(event)
    starts = [f"[*] --> {phase}: {Event.CREATE}" for phase in TRANSITIONS if phase in INITIAL_PHASES]
    return [*starts, *(f"{before} --> {after}: {', '.join(names)}" for (before, after), names in events.items())]


def _mermaid(lines: list[str]) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"```mermaid\nstateDiagram-v2\n{body}\n```"
