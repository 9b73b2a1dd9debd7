"""A file without what is wrong with its form, so that the rest of it can be checked all the same."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from raincheck.workflows.common_model import NAME
from raincheck.workflows.yaml_values import Route


def without(data: Mapping[str, Any], wrong: Iterable[Route]) -> dict[str, Any]:
    """A mapping without these of its values. The others stay in their order."""
    rest: dict[str, list[Route]] = {}
    for key, *inner in (route for route in wrong if route):
        rest.setdefault(str(key), []).append(tuple(inner))
    kept: dict[str, Any] = {}
    for key, value in data.items():
        routes = rest.get(key)
        if routes is None:
            kept[key] = value
        elif all(routes) and isinstance(value, Mapping):
            kept[key] = without(cast("Mapping[str, Any]", value), routes)
    return kept


def with_header(data: Mapping[str, Any], wrong: Iterable[Route]) -> dict[str, Any]:
    """A file without these of its values, but with what it begins with."""
    return {**without(data, wrong), "raincheck": 1}


def repaired(data: Mapping[str, Any], wrong: Iterable[Route]) -> dict[str, Any]:
    """A workflow with something harmless in the place of steps that are wrong, and without other values that are."""
    wrong = list(wrong)
    bad = {route[1] for route in wrong if len(route) > 1 and route[0] == "steps"}
    steps = data.get("steps")
    kept = without(data, [route for route in wrong if route[:1] != ("steps",)])
    if isinstance(steps, list):
        said = enumerate(cast("list[Any]", steps))
        kept["steps"] = [_stub(step, place) if place in bad else step for place, step in said]
    return kept


def _stub(step: Any, place: int) -> dict[str, Any]:  # noqa: ANN401 - whatever the file says
    """A step that others can need and name."""
    said = cast("dict[str, Any]", step if isinstance(step, dict) else {})
    stub: dict[str, Any] = {"id": said["id"] if _is_name(said.get("id")) else f"unnamed-{place}", "set": None}
    if isinstance(said.get("needs"), list):
        stub["needs"] = [one for one in said["needs"] if _is_name(one)]
    return stub


def _is_name(value: object) -> bool:
    return isinstance(value, str) and re.match(NAME, value) is not None
