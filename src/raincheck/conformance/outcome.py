"""Outcomes of a check, and levels of its requirement."""

from enum import StrEnum


class RequirementLevel(StrEnum):
    """The level of a requirement, in the terms of the specification."""

    MUST = "MUST"
    """A server that does not do it fails the check."""

    MUST_NOT = "MUST NOT"
    """A server that does it fails the check."""

    SHOULD = "SHOULD"
    """A server that does not do it gets a warning, since it may have a reason."""

    SHOULD_NOT = "SHOULD NOT"
    """A server that does it gets a warning, since it may have a reason."""

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
    """Communication with the server failed: it is gone, does not answer, or sends text that is not a message."""


class ServerDisconnected(CommunicationError):
    """The connection is closed: the server ended, or it ended the session."""
