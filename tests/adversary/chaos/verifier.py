"""The verifier: what must not have happened, judged by what was observed alone."""

from collections.abc import Callable, Iterator

from tests.adversary.chaos.effect_checks import EFFECT_CHECKS
from tests.adversary.chaos.evidence import Evidence, Index
from tests.adversary.chaos.response_checks import RESPONSE_CHECKS
from tests.adversary.chaos.store_checks import STORE_CHECKS

Check = Callable[[Index], Iterator[str]]
"""Yields a sentence for each violation that it finds."""

CHECKS: tuple[Check, ...] = (*RESPONSE_CHECKS, *EFFECT_CHECKS, *STORE_CHECKS)


def violations(evidence: Evidence) -> list[str]:
    """Return a sentence for each promise that was broken."""
    index = Index(evidence)
    return [*evidence.loose_ends, *(violation for check in CHECKS for violation in check(index))]
