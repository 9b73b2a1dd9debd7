"""Conformance suite for servers that implement the tasks of MCP 2025-11-25, over Streamable HTTP and stdio.

- `raincheck conformance 2025-11-25 URL` runs it from a shell, and prints a table.
- `V2025Contract`: subclass it, name a server, and pytest runs one test for each check.
- `run_suite`: runs it in a program and returns a `Report`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raincheck.conformance.caller import Timings
    from raincheck.conformance.check import Check
    from raincheck.conformance.checks import CHECKS
    from raincheck.conformance.outcome import CheckOutcome, CommunicationError, RequirementLevel
    from raincheck.conformance.roles import Role, load_roles
    from raincheck.conformance.run import CheckResult, Report, run_suite
    from raincheck.conformance.suite import ConformanceWarning, V2025Contract
    from raincheck.conformance.transport import ConformanceTarget

__all__ = [
    "CHECKS",
    "Check",
    "CheckOutcome",
    "CheckResult",
    "CommunicationError",
    "ConformanceTarget",
    "ConformanceWarning",
    "Report",
    "RequirementLevel",
    "Role",
    "Timings",
    "V2025Contract",
    "load_roles",
    "run_suite",
]

_HOMES = {
    "CHECKS": "checks",
    "Check": "check",
    "ConformanceWarning": "suite",
    "CheckResult": "run",
    "V2025Contract": "suite",
    "RequirementLevel": "outcome",
    "CheckOutcome": "outcome",
    "Timings": "caller",
    "Report": "run",
    "Role": "roles",
    "ConformanceTarget": "transport",
    "CommunicationError": "outcome",
    "load_roles": "roles",
    "run_suite": "run",
}


def __getattr__(name: str) -> object:
    # Imported on first access: only parts of the suite need pytest and an HTTP client.
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
