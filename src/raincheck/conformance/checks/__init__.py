"""All checks, in the order in which they run."""

from raincheck.conformance.check import Check
from raincheck.conformance.checks import (
    cancel,
    create,
    failure,
    get,
    inputs,
    isolation,
    list,
    messages,
    negotiation,
    notifications,
    progress,
    results,
    retention,
)

_MODULES = (
    negotiation,
    create,
    retention,
    get,
    results,
    failure,
    list,
    cancel,
    inputs,
    notifications,
    progress,
    isolation,
    messages,
)

TOPICS = {module.topic.title: tuple(module.topic.checks) for module in _MODULES}
"""The checks, grouped by topic."""

CHECKS: tuple[Check, ...] = tuple(check for checks in TOPICS.values() for check in checks)
"""All checks, in the order in which they run."""

__all__ = ["CHECKS", "TOPICS"]
