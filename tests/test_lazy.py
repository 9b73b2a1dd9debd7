"""Names of a package that are imported on first use."""

import sys
from types import ModuleType

import pytest

from raincheck._lazy import lazy_exports

PACKAGE = "package_of_this_test"


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType(PACKAGE)
    monkeypatch.setitem(sys.modules, PACKAGE, module)
    return module


def test_a_name_is_imported_from_its_module_once(package: ModuleType) -> None:
    _, find, _ = lazy_exports(PACKAGE, {"string": "digits hexdigits", "math": "pi"})
    assert find("hexdigits") == "0123456789abcdefABCDEF"
    assert vars(package)["hexdigits"] == find("hexdigits")
    assert "pi" not in vars(package)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'package_of_this_test' has no attribute 'letters'$"):
        lazy_exports(PACKAGE, {"string": "digits"})[1]("letters")


def test_a_missing_library_is_reported_with_the_extra_that_installs_it() -> None:
    _, find, _ = lazy_exports(PACKAGE, {"no_such_library": "name"}, extra="testing")
    with pytest.raises(ModuleNotFoundError, match=r"'no_such_library': install it .*raincheck\[testing\]") as e:
        find("name")
    assert e.value.name == "no_such_library"


def test_without_an_extra_a_missing_library_is_reported_as_it_is() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'no_such_library'$"):
        lazy_exports(PACKAGE, {"no_such_library": "name"})[1]("name")
