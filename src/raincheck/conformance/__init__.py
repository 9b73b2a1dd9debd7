"""Conformance suite for servers that implement the tasks of MCP 2025-11-25, over Streamable HTTP and stdio.

- `raincheck conformance 2025-11-25 URL` runs it from a shell, and prints a table.
- `V2025Contract`: subclass it, name a server, and pytest runs one test for each check.
- `run_suite`: runs it in a program and returns a `Report`.
"""

from typing import TYPE_CHECKING

from raincheck._lazy import lazy_exports

if TYPE_CHECKING:
    from raincheck.conformance.caller import Timings as Timings
    from raincheck.conformance.check import Check as Check
    from raincheck.conformance.checks import CHECKS as CHECKS
    from raincheck.conformance.connection import CommunicationError as CommunicationError
    from raincheck.conformance.requirements import CheckOutcome as CheckOutcome
    from raincheck.conformance.requirements import RequirementLevel as RequirementLevel
    from raincheck.conformance.roles import Role as Role
    from raincheck.conformance.roles import load_roles as load_roles
    from raincheck.conformance.run import CheckResult as CheckResult
    from raincheck.conformance.run import Report as Report
    from raincheck.conformance.run import run_suite as run_suite
    from raincheck.conformance.suite import ConformanceWarning as ConformanceWarning
    from raincheck.conformance.suite import V2025Contract as V2025Contract
    from raincheck.conformance.transport import ConformanceTarget as ConformanceTarget
else:
    # Imported on first use: only parts of the suite need pytest and an HTTP client.
    __all__, __getattr__, __dir__ = lazy_exports(
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
