"""The JSON Schema for editors matches the models."""

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import raincheck.workflows
from raincheck.workflows.load import file_schema, schema_text

KEPT = Path(raincheck.workflows.__file__).parent / "schema.json"

GOOD: dict[str, Any] = {
    "raincheck": 1,
    "allow": {"hosts": ["a.example"], "env": ["TOKEN"]},
    "servers": {"s": {"command": ["x"]}, "t": {"url": "https://a.example/mcp"}},
    "workflows": {
        "pipe": {
            "input": {"x": {"type": "string", "required": False}},
            "timeout": "2h",
            "steps": [
                {"id": "a", "run": ["echo", 1], "retry": {"attempts": 2, "backoff": "5s", "on": ["exit"]}},
                {"id": "b", "run": {"shell": "ls", "max_output": "1MB"}, "if": "true", "on_error": {"compensate": "a"}},
                {"id": "c", "http": {"url": "https://a.example", "json": {"a": 1}}, "for_each": [1], "timeout": 5},
                {"id": "d", "ask": {"message": "?", "schema": {"a": {"type": "string"}}}},
                {"id": "e", "python": "a:b", "with": {"x": 1}, "until": "result", "max_rounds": 3},
                {"id": "f", "set": None},
                {"id": "g", "sleep": "5m"},
            ],
            "output": {"a": "{{ steps.a.result }}"},
        },
        "machine": {"states": {"a": {"transitions": {"go": {"to": "b"}}}, "b": {"kind": "success"}}},
    },
}


def test_the_file_is_current() -> None:
    assert KEPT.read_text(encoding="utf-8") == schema_text(), "run scripts/check --fix"


def test_the_schema_accepts_what_the_models_accept() -> None:
    Draft202012Validator.check_schema(file_schema())  # type: ignore[arg-type] # it is a mapping
    validator: Any = Draft202012Validator(file_schema())  # type: ignore[arg-type] # likewise
    assert list(validator.iter_errors(GOOD)) == []


@pytest.mark.parametrize(
    "step",
    [{"id": "a"}, {"id": "a", "set": 1, "sleep": 1}, {"id": "a", "sett": 1}, {"set": 1}, {"id": "a b", "set": 1}],
)
def test_the_schema_refuses_invalid_steps(step: dict[str, Any]) -> None:
    validator: Any = Draft202012Validator(file_schema())  # type: ignore[arg-type] # it is a mapping
    assert list(validator.iter_errors({"raincheck": 1, "workflows": {"a": {"steps": [step]}}}))
