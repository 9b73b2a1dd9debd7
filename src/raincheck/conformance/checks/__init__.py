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

TOPICS = {
    "Negotiation": negotiation.CHECKS,
    "Creating": create.CHECKS,
    "Times and retention": retention.CHECKS,
    "Getting": get.CHECKS,
    "Results": results.CHECKS,
    "Failing": failure.CHECKS,
    "Listing": list.CHECKS,
    "Cancelling": cancel.CHECKS,
    "Input": inputs.CHECKS,
    "Status notifications": notifications.CHECKS,
    "Progress": progress.CHECKS,
    "Isolation": isolation.CHECKS,
    "Messages": messages.CHECKS,
}
"""The checks, grouped by topic."""

CHECKS: tuple[Check, ...] = tuple(check for checks in TOPICS.values() for check in checks)

__all__ = ["CHECKS", "TOPICS"]
