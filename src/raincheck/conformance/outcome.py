"""Outcomes of a check, and levels of its requirement."""

from enum import StrEnum


class RequirementLevel(StrEnum):
    """The level of a requirement, in the terms of the specification."""

    MUST = "MUST"
    """A server that does not do it is wrong."""

    MUST_NOT = "MUST NOT"
    """A server that does it is wrong."""

    SHOULD = "SHOULD"
    """A server may have a reason not to do it: a warning."""

    SHOULD_NOT = "SHOULD NOT"
    """A server may have a reason to do it: a warning."""

    @property
    def is_binding(self) -> bool:
        """Whether a server that does not meet the requirement fails."""
        return self in (RequirementLevel.MUST, RequirementLevel.MUST_NOT)


class CheckOutcome(StrEnum):
    """The outcome of a check."""

    PASSED = "passed"
    FAILED = "failed"
    WARNING = "warning"
    SKIPPED = "skipped"


class RequirementNotMet(Exception):
    """The server did not meet the requirement. The message states what it sent and what was expected."""


class NotApplicable(Exception):
    """The check does not apply to this server. The message states what is missing."""


class CommunicationError(Exception):
    """Communication with the server failed: it is gone, does not answer, or sends what is not a message."""


class ServerDisconnected(CommunicationError):
    """The connection is closed: the server ended, or it ended the session."""
