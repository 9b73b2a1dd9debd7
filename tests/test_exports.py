"""The public names exist, and importing raincheck is cheap."""

import importlib
import pkgutil
import subprocess
import sys

import pytest

import raincheck

MODULES = [
    "raincheck",
    *sorted(module.name for module in pkgutil.walk_packages(raincheck.__path__, "raincheck.")),
]


def _names(module: str) -> list[str]:
    return list(getattr(importlib.import_module(module), "__all__", []))


@pytest.mark.parametrize("module", MODULES)
def test_every_module_can_be_imported_and_has_its_declared_names(module: str) -> None:
    names = _names(module)
    assert len(names) == len(set(names))
    for name in names:
        assert hasattr(importlib.import_module(module), name), f"{module}.__all__ names {name}"


@pytest.mark.parametrize("module", [module for module in MODULES if _names(module)])
def test_the_public_names_are_sorted_and_can_be_imported_with_a_star(module: str) -> None:
    names = _names(module)
    # As ruff sorts them: constants, classes, the rest.
    assert names == sorted(names, key=lambda name: (not name.isupper(), not name[:1].isupper(), name))
    found: dict[str, object] = {}
    exec(f"from {module} import *", found)  # noqa: S102 - the subject of the test
    assert set(names) <= set(found)


def test_the_root_package_exports_the_main_names() -> None:
    names = _names("raincheck")
    assert names == sorted(names)
    assert {"RaincheckError", "open_store"} <= set(names)


def _imported_by(statement: str) -> set[str]:
    script = f"import sys; {statement}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


HEAVY = {"anyio", "fastmcp", "hypothesis", "jinja2", "mcp", "procrastinate", "psycopg", "pydantic", "pytest", "sqlite3"}


@pytest.mark.cold
def test_importing_raincheck_imports_nothing_heavy() -> None:
    assert not _imported_by("import raincheck") & HEAVY


@pytest.mark.cold
def test_importing_the_client_does_not_import_the_engine() -> None:
    assert "raincheck.engine" not in _imported_by("import raincheck.client")
    assert "raincheck.engine" in _imported_by("from raincheck import Engine")
    assert set(_names("raincheck")) <= set(dir(raincheck))
    with pytest.raises(AttributeError, match="'raincheck' has no attribute 'Tsaks'"):
        _ = raincheck.Tsaks  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType] - the subject of the test


@pytest.mark.cold
def test_importing_core_and_store_modules_imports_nothing_heavy() -> None:
    for module in ("raincheck.core.decide", "raincheck.stores.base", "raincheck.stores.memory"):
        assert not _imported_by(f"import {module}") & HEAVY
    # No driver and no SDK: `SqlStore` runs on an event loop, and needs its helpers.
    assert not _imported_by("from raincheck.stores import *") & (HEAVY - {"anyio"})
