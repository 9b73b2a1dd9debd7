"""What a user can meet by name has its place in the docs."""

import inspect

import pytest
from pages import PAGES, ROOT, text_of

from raincheck import errors, opening
from raincheck.core.lifecycle import Event, Phase, Status
from raincheck.stores.interface import Store

DOCS = "\n".join(text_of(page) for page in PAGES)
ERRORS = [name for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, Exception)]
METHODS = [name for name in vars(Store) if not name.startswith("_")]


@pytest.mark.parametrize("word", [*Phase, *Event, *Status])
def test_every_word_of_the_lifecycle_is_explained(word: str) -> None:
    assert f"| `{word}` |" in text_of(ROOT / "docs/concepts/lifecycle.md")


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_has_its_entry(name: str) -> None:
    assert f"\n## {name}\n" in text_of(ROOT / "docs/reference/errors.md")


@pytest.mark.parametrize("name", METHODS)
def test_every_method_of_a_store_has_its_entry(name: str) -> None:
    assert f"\n## {name}\n" in text_of(ROOT / "docs/reference/store.md")


def test_the_variable_that_names_the_store_is_explained() -> None:
    assert opening.VARIABLE in text_of(ROOT / "docs/howto/choose-a-store.md")


@pytest.mark.parametrize("error", [name for name in ERRORS if issubclass(getattr(errors, name), errors.StoreError)])
def test_the_guide_to_stores_says_what_to_do_about_every_error_of_a_store(error: str) -> None:
    assert f"`{error}`" in text_of(ROOT / "docs/howto/choose-a-store.md")
