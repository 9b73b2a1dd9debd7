"""A conformance suite for servers of the tasks of MCP 2025-11-25 ("G1"), over Streamable HTTP and stdio.

- `raincheck conformance g1 URL` runs it from a shell, and prints a table.
- `G1Contract`: subclass it, say which server, and pytest runs one test for each check.
- `run_suite`: the same in a program, with a `Report` to read.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raincheck.conformance.caller import Pace
    from raincheck.conformance.check import Check
    from raincheck.conformance.checks import CHECKS
    from raincheck.conformance.outcome import Level, Outcome, Trouble
    from raincheck.conformance.roles import Role, load_roles
    from raincheck.conformance.run import Finding, Report, run_suite
    from raincheck.conformance.suite import ConformanceWarning, G1Contract
    from raincheck.conformance.transport import Target

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
    "Finding": "run",
    "G1Contract": "suite",
    "Level": "outcome",
    "Outcome": "outcome",
    "Pace": "caller",
    "Report": "run",
    "Role": "roles",
    "Target": "transport",
    "Trouble": "outcome",
    "load_roles": "roles",
    "run_suite": "run",
}


def __getattr__(name: str) -> object:
    # Loaded when first asked for: pytest and an HTTP client are needed by parts of it only.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = import_module(f"{__name__}.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"raincheck.conformance needs {error.name!r}: install it with pip install 'raincheck[testing]'",
            name=error.name,
        ) from error
    return getattr(home, name)
