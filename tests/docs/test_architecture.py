"""The page on the architecture shows paths that calls really take, and the paths stay short."""

import re
from functools import cache
from pathlib import Path

import pytest
from scripts.call_paths import MAX_STEP_CALLS, PATHS, modules_of, step_calls, trace
from scripts.call_tracer import Call

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/design/architecture.md").read_text(encoding="utf-8")
DIAGRAM = re.compile(r"<!-- path: (\S+) -->\n```mermaid\nsequenceDiagram\n(.*?)```", re.DOTALL)
PARTICIPANT = re.compile(r"participant (\w+) as (\S+)")
ARROW = re.compile(r"\w+->>(\w+): ([\w.]+)")

DIAGRAMS: dict[str, str] = dict(DIAGRAM.findall(PAGE))

calls_of = cache(trace)


def arrows(diagram: str) -> list[Call]:
    """Return the calls that a diagram shows. Those of actors outside of the code are not among them."""
    modules: dict[str, str] = dict(PARTICIPANT.findall(diagram))
    return [Call(modules[to], function) for to, function in ARROW.findall(diagram) if to in modules]


@pytest.mark.parametrize("path", PATHS)
def test_the_page_shows_each_path(path: str) -> None:
    assert len(arrows(DIAGRAMS[path])) > 5


@pytest.mark.parametrize("path", PATHS)
def test_each_arrow_is_a_call_that_is_made_in_this_order(path: str) -> None:
    made = iter([Call(call.module, call.function) for call in calls_of(path)])
    for arrow in arrows(DIAGRAMS[path]):
        assert arrow in made, f"{arrow.module}: {arrow.function} is not called, or only before what is shown above it"


@pytest.mark.parametrize("path", PATHS)
def test_a_path_crosses_few_modules(path: str) -> None:
    modules = modules_of(calls_of(path))
    assert len(modules) <= PATHS[path].max_modules, modules


def test_a_step_makes_few_calls_before_the_rules_decide() -> None:
    calls = step_calls(calls_of("v2026-call"))
    assert len(calls) <= MAX_STEP_CALLS, calls


def test_a_diagram_whose_arrow_is_never_called_is_found() -> None:
    diagram = "participant engine as engine/engine\nhost->>engine: Engine.submit\nhost->>engine: Engine.vanished\n"
    assert arrows(diagram) == [Call("engine/engine", "Engine.submit"), Call("engine/engine", "Engine.vanished")]
