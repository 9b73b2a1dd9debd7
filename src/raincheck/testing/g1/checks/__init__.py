"""All checks, in the order in which they are done."""

from raincheck.testing.g1.check import Check
from raincheck.testing.g1.checks import (
    asking,
    cancelling,
    creating,
    failing,
    getting,
    isolation,
    keeping,
    listing,
    messages,
    negotiation,
    progress,
    results,
    telling,
)

TOPICS = {
    "Negotiation": negotiation.CHECKS,
    "Creating": creating.CHECKS,
    "Times and retention": keeping.CHECKS,
    "Getting": getting.CHECKS,
    "Results": results.CHECKS,
    "Failing": failing.CHECKS,
    "Listing": listing.CHECKS,
    "Cancelling": cancelling.CHECKS,
    "Input": asking.CHECKS,
    "Status notifications": telling.CHECKS,
    "Progress": progress.CHECKS,
    "Isolation": isolation.CHECKS,
    "Messages": messages.CHECKS,
}
"""The checks by what they are about."""

CHECKS: tuple[Check, ...] = tuple(check for checks in TOPICS.values() for check in checks)

__all__ = ["CHECKS", "TOPICS"]
