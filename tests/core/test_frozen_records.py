"""All records that the rules read are frozen and slotted."""

import dataclasses
import importlib
import inspect
import pkgutil

import pytest

import raincheck.core

MODULES = [
    "raincheck.stores.url",
    "raincheck.stores.requests",
    *(module.name for module in pkgutil.iter_modules(raincheck.core.__path__, "raincheck.core.")),
]
DATACLASSES = [
    member
    for module in MODULES
    for member in vars(importlib.import_module(module)).values()
    if inspect.isclass(member) and dataclasses.is_dataclass(member) and member.__module__ == module
    if dataclasses.fields(member)
]


def test_the_core_has_record_classes() -> None:
    assert len(DATACLASSES) > 30


@pytest.mark.parametrize("kind", DATACLASSES, ids=lambda kind: kind.__name__)
def test_a_record_class_is_frozen_and_slotted(kind: type[object]) -> None:
    blank = object.__new__(kind)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(blank, vars(kind)["__slots__"][0], None)
    assert not hasattr(blank, "__dict__")
