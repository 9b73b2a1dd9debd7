"""Tests that the client's reference page covers every exported name and option."""

import inspect

import pytest

from raincheck import client
from raincheck.client.client import CallOptions
from tests.support import ROOT

PAGE = (ROOT / "docs/reference/client.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", client.__all__)
def test_every_name_is_on_the_page(name: str) -> None:
    assert f"`{name}`" in PAGE or f"# {name}\n" in PAGE or f"={name})" in PAGE


@pytest.mark.parametrize("name", [*inspect.signature(client.TaskClient).parameters, *CallOptions.__annotations__])
def test_every_option_has_its_line(name: str) -> None:
    assert f"\n| `{name}` |" in PAGE
