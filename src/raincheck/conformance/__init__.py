"""Conformance suite for servers that implement the tasks of MCP 2025-11-25, over Streamable HTTP and stdio.

- `raincheck conformance 2025-11-25 URL` runs it from a shell, and prints a table.
- `V2025Contract`: subclass it, name a server, and pytest runs one test for each check.
- `run_suite`: runs it in a program and returns a `Report`.
"""

from typing import TYPE_CHECKING

from raincheck._lazy import lazy_exports

if TYPE_CHECKING:
    from raincheck.conformance.caller import Timings
    from raincheck.conformance.check import Check
    from raincheck.conformance.checks import CHECKS
    from raincheck.conformance.connection import CommunicationError
    from raincheck.conformance.requirements import CheckOutcome, RequirementLevel
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


# Imported on first use: only parts of the suite need pytest and an HTTP client.
if not TYPE_CHECKING:
    # Hidden from type checkers, so that they report names that do not exist.
    __getattr__ = lazy_exports(
        __name__,
        {
            "raincheck.conformance.caller": "Timings",
            "raincheck.conformance.check": "Check",
            "raincheck.conformance.checks": "CHECKS",
            "raincheck.conformance.connection": "CommunicationError",
            "raincheck.conformance.requirements": "CheckOutcome RequirementLevel",
            "raincheck.conformance.roles": "Role load_roles",
            "raincheck.conformance.run": "CheckResult Report run_suite",
            "raincheck.conformance.suite": "ConformanceWarning V2025Contract",
            "raincheck.conformance.transport": "ConformanceTarget",
        },
        extra="testing",
    )
