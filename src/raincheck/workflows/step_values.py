"""Where a step has values that may hold expressions."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from raincheck.workflows.action_model import ActionModel
from raincheck.workflows.yaml_values import Route


def values_of(step: ActionModel) -> Iterator[tuple[Route, str]]:
    """Every text that is a template, with the way to it."""
    for route, value in _fields(step):
        yield from texts_in(value, route)


def _fields(step: ActionModel) -> Iterator[tuple[Route, Any]]:
    yield ("run", "argv"), getattr(step.run, "argv", None)
    for name in ("env", "cwd", "stdin"):
        yield ("run", name), getattr(step.run, name, None)
    for name, field in (("url", "url"), ("headers", "headers"), ("json", "body_json"), ("body", "body")):
        yield ("http", name), getattr(step.http, field, None)
    yield ("call", "arguments"), getattr(step.call, "arguments", None)
    yield ("ask", "message"), getattr(step.ask, "message", None)
    for name in ("prompt", "system"):
        yield ("sample", name), getattr(step.sample, name, None)
    for place, message in enumerate(getattr(step.sample, "messages", None) or ()):
        yield ("sample", "messages", place, "text"), message.text
    yield ("with",), step.arguments
    yield ("set",), step.set
    yield ("sleep",), step.sleep


def texts_in(value: Any, route: Route) -> Iterator[tuple[Route, str]]:  # noqa: ANN401 - whatever the file says
    """Every text in a value, with the way to it."""
    if isinstance(value, str):
        yield route, value
    elif isinstance(value, Mapping):
        for key, one in cast("Mapping[str, Any]", value).items():
            yield from texts_in(one, (*route, key))
    elif isinstance(value, list):
        for place, one in enumerate(cast("list[Any]", value)):
            yield from texts_in(one, (*route, place))
