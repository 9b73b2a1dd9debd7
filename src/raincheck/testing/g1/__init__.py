"""A conformance suite for servers of the tasks of MCP 2025-11-25 ("G1"), over Streamable HTTP and stdio.

- `raincheck conformance g1 URL` runs it from a shell, and prints a table.
- `G1Contract`: subclass it, say which server, and pytest runs one test for each check.
- `run_suite`: the same in a program, with a `Report` to read.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raincheck.testing.g1.caller import Pace
    from raincheck.testing.g1.check import Check
    from raincheck.testing.g1.checks import CHECKS
    from raincheck.testing.g1.report import Finding, Report
    from raincheck.testing.g1.roles import Role, load_roles
    from raincheck.testing.g1.running import run_suite
    from raincheck.testing.g1.suite import ConformanceWarning, G1Contract
    from raincheck.testing.g1.target import Target
    from raincheck.testing.g1.verdicts import Level, Outcome, Trouble

__all__ = [
    "CHECKS",
    "Check",
    "ConformanceWarning",
    "Finding",
    "G1Contract",
    "Level",
    "Outcome",
    "Pace",
    "Report",
    "Role",
    "Target",
    "Trouble",
    "load_roles",
    "run_suite",
]

_HOMES = {
    "CHECKS": "checks",
    "Check": "check",
    "ConformanceWarning": "suite",
    "Finding": "report",
    "G1Contract": "suite",
    "Level": "verdicts",
    "Outcome": "verdicts",
    "Pace": "caller",
    "Report": "report",
    "Role": "roles",
    "Target": "target",
    "Trouble": "verdicts",
    "load_roles": "roles",
    "run_suite": "running",
}


def __getattr__(name: str) -> object:
    # Loaded when first asked for: pytest and an HTTP client are needed by parts of it only.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = import_module(f"{__name__}.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"raincheck.testing.g1 needs {error.name!r}: install it with pip install 'raincheck[testing]'",
            name=error.name,
        ) from error
    return getattr(home, name)
