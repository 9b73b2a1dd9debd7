"""Every public name, error, code and option is documented."""

import inspect

import pytest

from raincheck import errors
from raincheck.core.lifecycle import Event, Phase, Status
from raincheck.server import Tasks
from raincheck.server.tools.policy import ServedToolSettings
from raincheck.stores import factory
from raincheck.stores.base import Store
from raincheck.wire import errors as wire_errors
from tests.support.docs.pages import PAGES, ROOT, text_of

DOCS = "\n".join(text_of(page) for page in PAGES)
ERRORS = [name for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, Exception)]
CODES = [code for code in vars(wire_errors).values() if isinstance(code, int)]
METHODS = [name for name in dir(Store) if not name.startswith("_")]


@pytest.mark.parametrize("word", [*Phase, *Event, *Status])
def test_every_phase_event_and_status_is_documented(word: str) -> None:
    assert f"| `{word}` |" in text_of(ROOT / "docs/concepts/lifecycle.md")


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_is_documented(name: str) -> None:
    assert f"\n## {name}\n" in text_of(ROOT / "docs/reference/errors.md")


@pytest.mark.parametrize("name", METHODS)
def test_every_method_of_a_store_is_documented(name: str) -> None:
    assert f"\n## {name}\n" in text_of(ROOT / "docs/reference/store.md")


def test_the_store_variable_is_documented() -> None:
    assert factory.STORE_VARIABLE in text_of(ROOT / "docs/howto/choose-a-store.md")


@pytest.mark.parametrize("error", [name for name in ERRORS if issubclass(getattr(errors, name), errors.StoreError)])
def test_the_guide_to_stores_names_every_store_error(error: str) -> None:
    assert f"`{error}`" in text_of(ROOT / "docs/howto/choose-a-store.md")


@pytest.mark.parametrize("code", CODES)
def test_every_error_code_is_documented(code: int) -> None:
    assert f"\n| `{code}` |" in text_of(ROOT / "docs/reference/server.md")


@pytest.mark.parametrize("name", ServedToolSettings.__annotations__)
def test_every_setting_of_a_served_tool_is_documented(name: str) -> None:
    assert f"`{name}" in text_of(ROOT / "docs/reference/server.md")


@pytest.mark.parametrize("name", list(inspect.signature(Tasks).parameters))
def test_every_option_of_tasks_is_documented(name: str) -> None:
    assert f"\n| `{name}` |" in text_of(ROOT / "docs/reference/server.md")
