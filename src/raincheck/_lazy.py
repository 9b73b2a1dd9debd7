"""Public names of a package that are imported on first use, so that importing the package stays cheap."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_exports(package: str, names: Mapping[str, str], *, extra: str | None = None) -> Callable[[str], object]:
    """Return a `__getattr__` for a package.

    `names` lists the names that each module defines, separated by spaces. `extra` is the extra of raincheck that
    installs the libraries that these modules need.
    """
    modules = {name: module for module, listed in names.items() for name in listed.split()}

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

    return find
