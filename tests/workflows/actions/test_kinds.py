"""Every kind of action that a file can declare is served by a class, and described in the docs."""

from typing import get_args

import pytest
from pydantic import BaseModel

from raincheck.workflows.actions import ACTIONS
from raincheck.workflows.parsing.models import ActionKind, ActionModel
from tests.support import ROOT

CONSTANT = {
    "run": {"shell", "output", "max_output", "ok", "unsafe"},
    "http": {"method", "expect", "max_body"},
    "call": {"server", "tool"},
    "ask": {"schema"},
    "sample": {"max_tokens"},
}
"""The keys that can't contain expressions. All others of a kind are its `template_keys`."""

REFERENCE = (ROOT / "docs/reference/workflows.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs/howto/write-workflows.md").read_text(encoding="utf-8")


def keys_of(kind: ActionKind) -> set[str]:
    """Return the keys of a kind whose value is a mapping; none if it is not."""
    parts = [getattr(part, "__origin__", part) for part in get_args(ActionModel.model_fields[kind].annotation)]
    return {
        field.alias or name
        for part in parts
        if isinstance(part, type) and issubclass(part, BaseModel)
        for name, field in part.model_fields.items()
    }


def test_every_kind_has_a_class_and_a_field_in_the_model() -> None:
    assert set(ACTIONS) == set(get_args(ActionKind))
    assert set(ACTIONS) < set(ActionModel.model_fields)


@pytest.mark.parametrize("kind", ACTIONS)
def test_every_key_of_a_kind_is_checked_for_expressions_or_can_contain_none(kind: ActionKind) -> None:
    assert {*ACTIONS[kind].template_keys, *CONSTANT.get(kind, ())} == keys_of(kind)
    assert not CONSTANT.get(kind, set()) & {*ACTIONS[kind].template_keys}


@pytest.mark.parametrize("kind", ACTIONS)
def test_every_kind_is_in_the_reference_and_in_the_guide(kind: ActionKind) -> None:
    assert f"\n### {kind}\n" in REFERENCE
    assert f"\n| `{kind}: " in GUIDE
