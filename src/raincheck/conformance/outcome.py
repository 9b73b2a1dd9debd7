"""How a check can end, and how much its requirement binds."""

from enum import StrEnum


class Level(StrEnum):
    """How much a requirement binds, in the words of the specification."""

    MUST = "MUST"
    """A server that does otherwise is wrong."""

    MUST_NOT = "MUST NOT"
    """A server that does it is wrong."""

    SHOULD = "SHOULD"
    """A server may have a reason to do otherwise: a warning."""

    SHOULD_NOT = "SHOULD NOT"
    """A server may have a reason to do it: a warning."""

    @property
    def binds(self) -> bool:
        """Whether a server that does not keep it fails."""
        return self in (Level.MUST, Level.MUST_NOT)


class Outcome(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    WARNING = "warning"
    SKIPPED = "skipped"


class Unmet(Exception):
    """The server did not do what the check is about. The message says what came and what was due."""


class Inapplicable(Exception):
    """There is nothing to check here. The message says what is missing."""


class Trouble(Exception):
    """The server could not be talked with: it is gone, does not answer, or answers with what is no message."""


class Gone(Trouble):
    """The connection is over: the server ended, or ended the session."""
