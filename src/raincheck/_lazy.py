"""Public names of a package that are imported on first use, so that importing the package stays cheap."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_exports(
    package: str, names: Mapping[str, str], *, extra: str | None = None
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Return the `__all__`, the `__getattr__` and the `__dir__` of a package.

    `names` lists the names that each module defines, separated by spaces. `extra` is the extra of raincheck that
    installs the libraries that these modules need. Type checkers can't follow this: import the same names for them,
    each `as` itself, and hide this call from them, so that they report names that do not exist.
    """
    modules = {name: module for module, listed in names.items() for name in listed.split()}
    # Constants, classes, and the rest, as ruff sorts the names of other packages.
    exported = sorted(modules, key=lambda name: (not name.isupper(), not name[:1].isupper(), name))

    def find(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(modules[name])
        except ModuleNotFoundError as error:
            if extra is None:
                raise
            message = f"{package} needs {error.name!r}: install it with pip install 'raincheck[{extra}]'"
            raise ModuleNotFoundError(message, name=error.name) from error
        found = getattr(module, name)
        setattr(sys.modules[package], name, found)
        return found

    return exported, find, exported.copy
